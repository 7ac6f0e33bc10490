"""Rounds do not fill the store: few keys, old ones deleted, and a size that compaction bounds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.etcd import EtcdServer
from support.nodes import Node, records

from elastic.etcd import Client

# What etcd does for an operator who has switched it on; production would say hours.
COMPACTION = ("--auto-compaction-mode=periodic", "--auto-compaction-retention=1s")
HISTORY = 64


@pytest.mark.parametrize(
    ("rounds", "quota"),
    [(200, 2 << 20), pytest.param(4000, 16 << 20, marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
)
def test_many_rounds_stay_within_a_small_quota(
    etcd_server: Callable[..., EtcdServer],
    node_of: Callable[..., Node],
    run_id: str,
    rounds: int,
    quota: int,
) -> None:
    server = etcd_server(arguments=[f"--quota-backend-bytes={quota}", *COMPACTION])
    handler = node_of(server.endpoint, run_id, "1:1", last_call_timeout=0).handler
    sizes = []
    with Client([server.endpoint]) as client:
        before = client.get_prefix(b"").revision
        for number in range(1, rounds + 1):
            assert handler.next_rendezvous().round == number
            handler.workers_started()
            if number % (rounds // 4) == 0:
                sizes.append(client.status().db_size)
            handler.regroup("another round")
        revisions = client.get_prefix(b"").revision - before
        assert client.status().errors == (), "no alarm"
        keys = records(client, run_id)
    assert len([key for key in keys if key.startswith("history/")]) <= HISTORY
    assert len(keys) <= HISTORY + 8
    print(f"{rounds} rounds: {revisions / rounds:.1f} revisions each, {len(keys)} keys, sizes {sizes}")
    assert revisions <= 6 * rounds
    assert sizes[-1] < quota


def test_a_world_at_rest_writes_nothing(
    etcd_server: Callable[..., EtcdServer], node_of: Callable[..., Node], run_id: str
) -> None:
    """Nothing is put to say that a node lives: its lease says that, and costs the store nothing."""
    server = etcd_server()
    nodes = [node_of(server.endpoint, run_id, "2", ttl=2).follow() for _ in range(2)]
    for each in nodes:
        each.until_world(2)
    with Client([server.endpoint]) as client:

        def revision() -> int:
            return client.get_prefix(b"").revision

        # First come the last words on the world that has just formed.
        deadline, last = time.monotonic() + 40, -1
        while last != revision():
            assert time.monotonic() < deadline, "it comes to rest"
            last = revision()
            time.sleep(4)  # two lives of a lease, each renewed three times
