"""The store's documented meaning, on a real etcd."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.crowd import counts
from support.etcd import EtcdServer
from support.nodes import out_of_sight

from elastic.etcd import Client
from elastic.rendezvous import RendezvousStoreInfo
from elastic.store import Store, StoreError, StoreTimeoutError
from elastic.store.etcd import EtcdStore

SOON = timedelta(seconds=0.3)
LONG = timedelta(seconds=40)


@pytest.fixture
def store(client: Client, space: bytes) -> EtcdStore:
    return EtcdStore(client, space.decode(), timeout=LONG)


@pytest.fixture
def other(etcd: EtcdServer, space: bytes) -> Iterator[EtcdStore]:
    """The same store, of another client."""
    with Client([etcd.endpoint]) as client:
        yield EtcdStore(client, space.decode(), timeout=LONG)


# -- set, get, check, delete ------------------------------------------------------------------------


def test_what_is_set_is_got(store: Store, other: Store) -> None:
    store.set("a", "text")
    assert store.get("a") == other.get("a") == b"text"
    other.set("a", b"later")
    assert store.get("a") == b"later"


@pytest.mark.parametrize("value", [b"", b"\x00\xff\xfe", bytes(range(256)), b"x" * 100_000, "é\u2028"])
def test_any_value_comes_back_as_it_was(store: Store, value: bytes | str) -> None:
    store.set("a", value)
    assert store.get("a") == (value.encode() if isinstance(value, str) else value)


@pytest.mark.parametrize("key", ["a", "a/b", "a b", "", "é", "*", "a\nb"])
def test_any_text_is_a_key(store: Store, key: str) -> None:
    store.set(key, "x")
    assert store.check([key])
    assert store.get(key) == b"x"
    assert store.num_keys() == 1


def test_check_asks_for_all_keys_and_does_not_wait(store: Store) -> None:
    store.set("a", "")
    store.set("b", "")
    assert store.check(["a", "b"])
    assert store.check([])
    assert not store.check(["a", "b", "c"])


def test_delete_says_whether_it_was_there(store: Store) -> None:
    store.set("a", "")
    assert store.delete_key("a") is True
    assert store.delete_key("a") is False
    assert not store.check(["a"])


def test_keys_are_counted(store: Store, client: Client, space: bytes) -> None:
    assert store.num_keys() == 0
    for key in ("a", "b", "c"):
        store.set(key, "")
    assert store.num_keys() == 3
    store.delete_key("b")
    assert store.num_keys() == 2
    client.put(space[:-1] + b"elsewhere", b"")
    assert store.num_keys() == 2


def test_stores_of_other_prefixes_are_other_stores(client: Client, space: bytes) -> None:
    one, two = EtcdStore(client, space.decode() + "1/"), EtcdStore(client, space.decode() + "2/")
    one.set("a", "1")
    assert not two.check(["a"])
    two.set("a", "2")
    assert one.get("a") == b"1"


def test_keys_go_with_the_lease_that_the_store_was_given(client: Client, space: bytes) -> None:
    lease = client.lease_grant(60)
    store = EtcdStore(client, space.decode(), lease=lease.id)
    store.set("a", "1")
    store.add("b", 1)
    store.compare_set("c", "", "1")
    assert store.num_keys() == 3
    client.lease_revoke(lease.id)
    assert store.num_keys() == 0


# -- waiting ----------------------------------------------------------------------------------------


def blocked(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """A call that should block, in a thread, and where its outcome will be."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except StoreError as e:
            outcome.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_get_waits_for_a_set_of_another_client(store: Store, other: Store) -> None:
    thread, outcome = blocked(lambda: store.get("a"))
    thread.join(0.2)
    assert outcome == []
    other.set("a", b"\xff")
    thread.join(LONG.total_seconds())
    assert outcome == [b"\xff"]


def test_wait_returns_once_all_keys_are_there(store: Store, other: Store) -> None:
    thread, outcome = blocked(lambda: store.wait(["a", "b", "c"]))
    for key in ("b", "c"):
        other.set(key, "")
    other.set("unrelated", "")
    thread.join(0.2)
    assert outcome == []
    other.set("a", "")
    thread.join(LONG.total_seconds())
    assert outcome == [None]


def test_hundreds_of_keys_are_waited_for(store: Store, other: Store) -> None:
    """More than one transaction may hold."""
    keys = [f"rank{n}" for n in range(300)]
    assert not store.check(keys)
    thread, outcome = blocked(lambda: store.wait(keys))
    for key in reversed(keys):
        other.set(key, "")
    thread.join(LONG.total_seconds())
    assert outcome == [None]
    assert store.check(keys)
    assert not store.check([*keys, "one more"])


def test_a_key_that_is_there_is_not_waited_for(store: Store) -> None:
    store.set("a", "")
    store.wait(["a"], timedelta(0))
    store.wait([], timedelta(0))


def test_the_time_of_a_wait_is_its_own_or_the_stores(store: Store) -> None:
    assert store.timeout == LONG
    with pytest.raises(StoreTimeoutError):
        store.wait(["a"], SOON)
    store.set_timeout(SOON)
    assert store.timeout == SOON
    with pytest.raises(StoreTimeoutError, match=r"0\.3 s"):
        store.get("a")


def test_a_wait_that_is_too_long_names_what_is_missing(store: Store) -> None:
    store.set("b", "")
    with pytest.raises(StoreTimeoutError) as caught:
        store.wait(["a", "b", "c"], SOON)
    assert "'a', 'c'" in str(caught.value)
    assert "'b'" not in str(caught.value)
    assert isinstance(caught.value, StoreError)


def test_a_deletion_does_not_end_a_wait(store: Store, other: Store) -> None:
    other.set("a", "1")
    other.delete_key("a")
    thread, outcome = blocked(lambda: store.get("a"))
    other.delete_key("a")
    thread.join(0.2)
    assert outcome == []
    other.set("a", "2")
    thread.join(LONG.total_seconds())
    assert outcome == [b"2"]


def test_a_wait_survives_a_compaction(store: Store, other: Store, client: Client, space: bytes) -> None:
    thread, outcome = blocked(lambda: store.get("a"))
    for _ in range(20):
        other.set("b", "")
        client.compact(client.get_prefix(space).revision)
    other.set("a", "x")
    thread.join(LONG.total_seconds())
    assert outcome == [b"x"]


def test_a_wait_survives_a_restart(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    with Client([server.endpoint]) as client:
        store = EtcdStore(client, "s/", timeout=LONG)
        thread, outcome = blocked(lambda: store.get("a"))
        thread.join(0.2)
        server.kill()
        server.start().wait_ready()
        store.set("a", "x")
        thread.join(LONG.total_seconds())
        assert outcome == [b"x"]


def test_a_wait_survives_the_loss_of_history(etcd_server: Callable[..., EtcdServer]) -> None:
    """The key is set and the history compacted while the store is cut off: no event will tell of it."""
    server = etcd_server()
    with Client([server.endpoint]) as client:
        store = EtcdStore(client, "s/", timeout=LONG)
        thread, outcome = blocked(lambda: store.get("a"))
        thread.join(0.2)
        server.stop()
        with out_of_sight(server) as unseen:
            unseen.put(b"s/a", b"x")
            unseen.put(b"other", b"")
            unseen.compact(unseen.get_prefix(b"other").revision)
        server.start().wait_ready()
        thread.join(LONG.total_seconds())
        assert outcome == [b"x"]


def test_waiting_costs_one_watch_and_no_polling(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    with Client([server.endpoint]) as client:
        store = EtcdStore(client, "s/", timeout=LONG)
        thread, outcome = blocked(lambda: store.get("a"))
        time.sleep(0.3)
        before = counts(server.url)
        time.sleep(1)
        assert counts(server.url).since(before).requests == {}
        store.set("a", "x")
        thread.join(LONG.total_seconds())
        assert outcome == [b"x"]


def test_nothing_is_left_of_a_wait_that_is_over(store: Store) -> None:
    with pytest.raises(StoreTimeoutError):
        store.wait(["a"], SOON)
    assert not [t for t in threading.enumerate() if t.name == "etcd-watch"]


# -- add and compare_set ----------------------------------------------------------------------------


def test_add_counts_from_nothing(store: Store, other: Store) -> None:
    assert store.add("n", 5) == 5
    assert other.add("n", -7) == -2
    assert store.add("n", 0) == -2
    assert store.get("n") == b"-2"


def test_add_counts_from_what_was_set(store: Store) -> None:
    store.set("n", "40")
    assert store.add("n", 2) == 42


def test_add_to_what_is_no_number_is_refused(store: Store) -> None:
    store.set("n", b"\xff")
    with pytest.raises(StoreError, match=r"'n'.*no number"):
        store.add("n", 1)
    assert store.get("n") == b"\xff"


def test_concurrent_adds_lose_nothing_and_see_every_total_once(store: Store, other: Store) -> None:
    threads, times = 8, 10

    def count(number: int) -> list[int]:
        mine = store if number % 2 else other
        return [mine.add("n", 1) for _ in range(times)]

    with ThreadPoolExecutor(threads) as pool:
        totals = [total for each in pool.map(count, range(threads)) for total in each]
    assert sorted(totals) == list(range(1, threads * times + 1))
    assert store.get("n") == str(threads * times).encode()


def test_compare_set_where_the_value_is_as_expected(store: Store) -> None:
    store.set("a", "old")
    assert store.compare_set("a", "old", b"\xff") == b"\xff"
    assert store.get("a") == b"\xff"


def test_compare_set_where_it_is_not(store: Store) -> None:
    store.set("a", "other")
    assert store.compare_set("a", "old", "new") == b"other"
    assert store.get("a") == b"other"


def test_compare_set_where_there_is_none(store: Store) -> None:
    assert store.compare_set("a", "old", "new") == b"old"
    assert not store.check(["a"])
    assert store.compare_set("a", "", "new") == b"new"
    assert store.get("a") == b"new"
    assert store.compare_set("a", "", "newer") == b"new"


def test_one_of_many_compare_sets_wins(store: Store, other: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: (store if n % 2 else other).compare_set("a", "", str(n)), range(8)))
    assert len(set(found)) == 1
    assert store.get("a") == found[0]


# -- errors, and what stands on it ------------------------------------------------------------------


def test_a_store_without_a_server_fails_in_words(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    with Client([server.endpoint], timeout=0.5) as client:
        store = EtcdStore(client, "s/", timeout=SOON)
        server.kill()
        calls: list[Callable[[], object]] = [
            lambda: store.set("a", ""),
            lambda: store.get("a"),
            lambda: store.wait(["a"]),
            lambda: store.check(["a"]),
            lambda: store.add("a", 1),
            lambda: store.compare_set("a", "", ""),
            lambda: store.delete_key("a"),
            store.num_keys,
        ]
        for call in calls:
            with pytest.raises(StoreError, match=server.endpoint):
                call()


def test_the_address_of_rank_0_is_agreed_on_over_a_store(store: Store, other: Store) -> None:
    thread, outcome = blocked(lambda: RendezvousStoreInfo.build(1, other))
    info = RendezvousStoreInfo.build(0, store, local_addr="127.0.0.1", server_port=4321)
    thread.join(LONG.total_seconds())
    assert outcome == [info]
    assert (info.master_addr, info.master_port, info.port) == ("127.0.0.1", 4321, 4321)


def test_rank_0_finds_a_free_port_by_itself(store: Store) -> None:
    info = RendezvousStoreInfo.build(0, store, local_addr="127.0.0.1")
    assert info.master_port > 0
    assert RendezvousStoreInfo.build(1, store) == info
