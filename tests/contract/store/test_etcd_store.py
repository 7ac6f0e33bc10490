"""What is etcd's own in a store over it: prefixes, leases, history, outages. The rest is in test_store.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from support.blocking import Blocked
from support.crowd import counts
from support.etcd import EtcdServer, wait_until
from support.nodes import out_of_sight

from elastic.etcd import Client
from elastic.store import StoreError
from elastic.store.etcd import EtcdStore

SOON = timedelta(seconds=0.3)
LONG = timedelta(seconds=40)


@pytest.fixture
def store(client: Client, space: bytes) -> EtcdStore:
    return EtcdStore(client, space.decode(), timeout=LONG)


def test_stores_of_other_prefixes_are_other_stores(client: Client, space: bytes) -> None:
    one, two = EtcdStore(client, space.decode() + "1/"), EtcdStore(client, space.decode() + "2/")
    one.set("a", "1")
    assert not two.check(["a"])
    two.set("a", "2")
    assert one.get("a") == b"1"


def test_keys_next_to_a_prefix_are_not_counted(store: EtcdStore, client: Client, space: bytes) -> None:
    store.set("a", "")
    client.put(space[:-1] + b"elsewhere", b"")
    assert store.num_keys() == 1
    assert store.list_keys() == ["a"]


def test_keys_go_with_the_lease_that_the_store_was_given(client: Client, space: bytes) -> None:
    lease = client.lease_grant(60)
    store = EtcdStore(client, space.decode(), lease=lease.id)
    store.set("a", "1")
    store.add("b", 1)
    store.compare_set("c", "", "1")
    store.multi_set(["d"], ["1"])
    store.append("e", "1")
    assert store.num_keys() == 5
    client.lease_revoke(lease.id)
    assert store.num_keys() == 0


def test_a_wait_survives_a_compaction(store: EtcdStore, client: Client, space: bytes) -> None:
    call = Blocked(lambda: store.get("a"))
    for _ in range(20):
        store.set("b", "")
        client.compact(client.get_prefix(space).revision)
    store.set("a", "x")
    assert call.result() == b"x"


def test_a_wait_survives_a_restart(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    with Client([server.endpoint]) as client:
        store = EtcdStore(client, "s/", timeout=LONG)
        call = Blocked(lambda: store.get("a"))
        assert call.still(0.2)
        server.kill()
        server.start().wait_ready()
        store.set("a", "x")
        assert call.result() == b"x"


def test_a_wait_survives_the_loss_of_history(etcd_server: Callable[..., EtcdServer]) -> None:
    """The key is set and the history compacted while the store is cut off: no event will tell of it."""
    server = etcd_server()
    with Client([server.endpoint]) as client:
        store = EtcdStore(client, "s/", timeout=LONG)
        call = Blocked(lambda: store.get("a"))
        assert call.still(0.2)
        server.stop()
        with out_of_sight(server) as unseen:
            unseen.put(b"s/a", b"x")
            unseen.put(b"other", b"")
            unseen.compact(unseen.get_prefix(b"other").revision)
        server.start().wait_ready()
        assert call.result() == b"x"


def test_waiting_costs_watches_and_no_polling(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    with Client([server.endpoint]) as client:
        store = EtcdStore(client, "s/", timeout=LONG)
        start = counts(server.url)
        call, another = Blocked(lambda: store.get("a")), Blocked(lambda: store.wait_change("a", None))

        def have_looked() -> bool:
            asked = counts(server.url).since(start).requests
            return asked.get("Range", 0) >= 2 and asked.get("Txn", 0) >= 1

        wait_until(have_looked, what="both to have seen that there is nothing")
        before = counts(server.url)
        time.sleep(1)
        assert counts(server.url).since(before).requests == {}
        store.set("a", "x")
        assert call.result() == b"x"
        assert another.result() is True


def test_a_store_without_a_server_fails_in_words(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    with Client([server.endpoint], timeout=0.5) as client:
        store = EtcdStore(client, "s/", timeout=SOON)
        server.kill()
        calls: list[Callable[[], object]] = [
            lambda: store.set("a", ""),
            lambda: store.multi_set(["a"], [""]),
            lambda: store.append("a", ""),
            lambda: store.peek("a"),
            lambda: store.multi_get(["a"]),
            lambda: store.wait_change("a", None),
            lambda: store.get("a"),
            lambda: store.wait(["a"]),
            lambda: store.check(["a"]),
            lambda: store.add("a", 1),
            lambda: store.compare_set("a", "", ""),
            lambda: store.delete_key("a"),
            store.num_keys,
            store.list_keys,
        ]
        for call in calls:
            with pytest.raises(StoreError, match=server.endpoint):
                call()
