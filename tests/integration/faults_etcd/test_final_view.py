"""What nodes know in the end is what etcd holds, whatever was cut and compacted on the way."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable

import pytest
from support.etcd import EtcdServer, wait_until
from support.nodes import Node, parameters
from support.relay import Relay

from elastic.etcd import Client
from elastic.rendezvous import DynamicRendezvousHandler
from elastic.rendezvous.backends.etcd import read_run
from elastic.rendezvous.core.view import NODES, View, node_key

MakeNode = Callable[..., Node]

COMPACT_SECONDS = 1.0
CONF = {"ttl": 10, "settle_timeout": 0, "last_call_timeout": 0}


class Trouble(threading.Thread):
    """Compacts the history all the time, and cuts every connection through the relay now and then."""

    def __init__(self, server: EtcdServer, relay: Relay, *, seed: int, compact_seconds: float) -> None:
        super().__init__(name="test-trouble")
        self._server = server
        self._relay = relay
        self._random = random.Random(seed)
        self._compact_seconds = compact_seconds
        self._over = threading.Event()
        self.cuts = 0
        self.compactions = 0

    def run(self) -> None:
        due = self._compact_seconds
        with Client([self._server.endpoint]) as client:
            while True:
                pause = self._random.uniform(0.1, 1.0)
                if self._over.wait(min(pause, due)):
                    return
                if pause < due:
                    due -= pause
                    self._relay.cut()
                    self.cuts += 1
                else:
                    due = self._compact_seconds
                    client.compact(client.get_prefix(b"/elastic/").revision)
                    self.compactions += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


def known(view: View, *, of: str, nodes: bool) -> dict[str, tuple[object, int, int]]:
    """The records in a view, with their revisions, that a node follows: all nodes only where it leads."""
    return {
        key: (seen.record, seen.mod_revision, seen.create_revision)
        for key, seen in view.entries.items()
        if key in ("round", "leader", "closed", node_key(of)) or (nodes and key.startswith(NODES))
    }


def differences(nodes: list[Node], fresh: View) -> list[str]:
    """What the nodes know otherwise than a fresh read."""
    assert fresh.leader is not None, "somebody leads"
    found = []
    for each in nodes:
        assert isinstance(each.handler, DynamicRendezvousHandler)
        leads = each.id == fresh.leader.record.node_id
        theirs = known(each.handler.view, of=each.id, nodes=leads)
        truth = known(fresh, of=each.id, nodes=leads)
        found += [
            f"{each.id}: {key}" for key in theirs.keys() | truth.keys() if theirs.get(key) != truth.get(key)
        ]
    return found


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13))]
)
def test_the_final_view_of_each_node_is_a_fresh_read(
    etcd_server: Callable[..., EtcdServer], node_of: MakeNode, run_id: str, seed: int
) -> None:
    server = etcd_server()
    choices = random.Random(seed)
    with Relay((server.host, server.port)) as relay, contextlib.ExitStack() as leaving:

        def arrive() -> Node:
            each = node_of(relay.endpoint, run_id, "1:4", connect_timeout=30, **CONF)
            leaving.callback(each.close)  # before the relay is gone
            return each.follow()

        here = [arrive(), arrive()]
        here[0].until_world(2)
        trouble = Trouble(server, relay, seed=seed, compact_seconds=COMPACT_SECONDS)
        trouble.start()
        turns = 0
        try:
            while turns < 6 or trouble.cuts < 6 or trouble.compactions < 2:
                turns += 1
                assert turns < 100, "the trouble has stopped"
                if len(here) == 2 or (len(here) == 3 and choices.random() < 0.5):
                    here.append(arrive())
                else:
                    here.pop(choices.randrange(len(here))).close()
                for each in here:
                    each.until_world(len(here))
        finally:
            trouble.stop()
        found: list[str] = []

        def agree() -> bool:
            found[:] = differences(here, read_run(parameters(server.endpoint, run_id, "1:4", **CONF), {}))
            return not found

        wait_until(agree, seconds=30, what="the same view everywhere")
        print(f"seed {seed}: {turns} turns, {trouble.cuts} cuts, {trouble.compactions} compactions")
