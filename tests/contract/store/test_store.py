"""What every store means by its methods. See conftest.py for the stores."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.blocking import Blocked
from support.etcd import wait_until

from elastic.rendezvous import RendezvousStoreInfo
from elastic.store import Store, StoreError, StoreTimeoutError, as_store

SOON = timedelta(seconds=0.05)


# -- set, get, check, delete ------------------------------------------------------------------------


def test_what_is_set_is_got(store: Store, other: Store) -> None:
    store.set("a", "text")
    assert store.get("a") == other.get("a") == b"text"
    other.set("a", b"later")
    assert store.get("a") == b"later"


@pytest.mark.parametrize("value", [b"", b"\x00\xff\xfe", bytes(range(256)), b"x" * 100_000, "é\u2028"])
def test_any_value_comes_back_as_it_was(store: Store, value: bytes | str) -> None:
    store.set("a", value)
    assert store.get("a") == store.peek("a") == (value.encode() if isinstance(value, str) else value)


@pytest.mark.parametrize("key", ["a", "a/b", "a b", "", "é", "*", "a\nb"])
def test_any_text_is_a_key(store: Store, counted_from: int, key: str) -> None:
    store.set(key, "x")
    assert store.check([key])
    assert store.has(key)
    assert store.get(key) == b"x"
    assert store.num_keys() - counted_from == 1


def test_what_is_neither_text_nor_bytes_is_no_value(store: Store) -> None:
    with pytest.raises(TypeError, match="int"):
        store.set("a", 1)  # type: ignore[arg-type]
    assert store.peek("a") is None


def test_to_peek_does_not_wait(store: Store, other: Store, counted_from: int) -> None:
    assert store.peek("a") is None
    assert store.num_keys() == counted_from
    other.set("a", "")
    assert store.peek("a") == b""
    other.delete_key("a")
    assert store.peek("a") is None


def test_check_asks_for_all_keys_and_does_not_wait(store: Store) -> None:
    store.set("a", "")
    store.set("b", "")
    assert store.check(["a", "b"])
    assert store.check([])
    assert not store.check(["a", "b", "c"])
    assert not store.has("c")


def test_delete_says_whether_it_was_there(store: Store) -> None:
    store.set("a", "")
    assert store.delete_key("a") is True
    assert store.delete_key("a") is False
    assert not store.check(["a"])


def test_keys_are_counted_and_listed(store: Store, counted_from: int, lists: bool) -> None:
    own = store.list_keys() if lists else []
    for key in ("c", "a", "b"):
        store.set(key, "")
    assert store.num_keys() - counted_from == 3
    store.delete_key("b")
    assert store.num_keys() - counted_from == 2
    if lists:
        assert store.list_keys() == sorted([*own, "a", "c"])
    else:
        with pytest.raises(StoreError, match="cannot list"):
            store.list_keys()


def test_several_are_set_and_got_at_once(store: Store, other: Store) -> None:
    keys = [f"k{n}" for n in range(250)]  # more than one transaction may hold
    store.multi_set(keys, [str(n) if n % 2 else b"%d" % n for n in range(250)])
    assert other.multi_get(keys) == [b"%d" % n for n in range(250)]
    assert other.multi_get(["k7", "k3", "k7"]) == [b"7", b"3", b"7"]
    assert other.multi_get([]) == []
    store.multi_set([], [])


def test_each_key_needs_a_value(store: Store) -> None:
    with pytest.raises(ValueError, match="2 keys, but 1 values"):
        store.multi_set(["a", "b"], ["1"])
    assert not store.has("a")


def test_one_text_is_no_list_of_keys(store: Store) -> None:
    """Else its letters would be waited for, until the time is up."""
    for call in (store.wait, store.check, store.multi_get):
        with pytest.raises(TypeError, match=r"'key' is one text: write \['key'\]"):
            call("key")
    with pytest.raises(TypeError, match="one text"):
        store.multi_set("ab", ["1", "2"])


def test_the_last_value_of_a_key_counts(store: Store) -> None:
    store.multi_set(["a", "a"], ["1", "2"])
    assert store.get("a") == b"2"


# -- waiting ----------------------------------------------------------------------------------------


def test_get_waits_for_a_set_of_another_client(store: Store, other: Store) -> None:
    call = Blocked(lambda: store.get("a"))
    assert call.still()
    other.set("a", b"\xff")
    assert call.result() == b"\xff"


def test_a_blocked_call_holds_up_no_other_of_the_same_store(store: Store) -> None:
    calls = [Blocked(lambda: store.get("a")), Blocked(lambda: store.wait_change("b", None))]
    assert calls[0].still()
    store.set("b", "")
    assert calls[1].result() is True
    store.set("a", "1")
    assert calls[0].result() == b"1"


def test_wait_returns_once_all_keys_are_there(store: Store, other: Store) -> None:
    call = Blocked(lambda: store.wait(["a", "b", "c"]))
    for key in ("b", "c"):
        other.set(key, "")
    other.set("unrelated", "")
    assert call.still()
    other.set("a", "")
    assert call.result() is None


def test_several_are_waited_for(store: Store, other: Store) -> None:
    call = Blocked(lambda: store.multi_get(["a", "b"]))
    other.set("b", "2")
    assert call.still()
    other.set("a", "1")
    assert call.result() == [b"1", b"2"]


def test_all_keys_are_there_at_once_when_a_wait_ends(store: Store, other: Store) -> None:
    call = Blocked(lambda: store.wait(["a", "b"]))
    assert call.still()
    other.set("a", "")
    other.delete_key("a")
    other.set("b", "")
    assert call.still()
    other.set("a", "")
    assert call.result() is None


def test_hundreds_of_keys_are_waited_for(store: Store, other: Store) -> None:
    keys = [f"rank{n}" for n in range(200)]
    assert not store.check(keys)
    call = Blocked(lambda: store.wait(keys))
    other.multi_set(list(reversed(keys)), [""] * len(keys))
    assert call.result() is None
    assert store.check(keys)
    assert not store.check([*keys, "one more"])


def test_a_key_that_is_there_is_not_waited_for(store: Store) -> None:
    store.set("a", "")
    store.wait(["a"], timedelta(0))
    store.wait([], timedelta(0))
    assert store.get("a", timedelta(0)) == b""
    assert store.multi_get(["a"], 0) == [b""]


def test_the_time_of_a_wait_is_its_own_or_the_stores(store: Store) -> None:
    with pytest.raises(StoreTimeoutError, match=r"0\.05 s.*a'"):
        store.wait(["a"], SOON)
    with pytest.raises(StoreTimeoutError, match=r"0\.03 s.*a'"):
        store.get("a", 0.03)
    store.set_timeout(SOON)
    assert store.timeout == SOON
    with pytest.raises(StoreTimeoutError, match=r"0\.05 s"):
        store.get("a")
    with pytest.raises(StoreTimeoutError, match=r"0\.05 s"):
        store.multi_get(["a"])


@pytest.mark.parametrize("timeout", [-1, timedelta(seconds=-1), float("nan"), float("inf")])
def test_an_impossible_time_is_refused(store: Store, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        store.get("a", timeout)


def test_a_time_without_end_is_taken(store: Store, other: Store) -> None:
    call = Blocked(lambda: store.wait_change("a", None, timedelta.max))
    assert call.still()
    other.set("a", "")
    assert call.result() is True


def test_a_wait_that_is_too_long_names_what_is_missing(store: Store) -> None:
    store.set("b", "")
    with pytest.raises(StoreTimeoutError, match=r"a', '.*c'") as caught:
        store.wait(["a", "b", "c"], SOON)
    assert "b'" not in str(caught.value)
    assert isinstance(caught.value, StoreError)


def test_a_deletion_does_not_end_a_wait(store: Store, other: Store) -> None:
    other.set("a", "1")
    other.delete_key("a")
    call = Blocked(lambda: store.get("a"))
    other.delete_key("a")
    assert call.still()
    other.set("a", "2")
    assert call.result() == b"2"


# -- waiting for a change ---------------------------------------------------------------------------


def test_what_has_changed_already_is_not_waited_for(store: Store) -> None:
    assert store.wait_change("a", b"1", 0) is True
    store.set("a", "1")
    assert store.wait_change("a", None, 0) is True
    assert store.wait_change("a", b"2", 0) is True
    assert store.wait_change("a", b"", 0) is True
    assert store.wait_change("a", b"1", 0) is False


@pytest.mark.parametrize("known", [None, b"", b"1"])
def test_a_change_by_another_client_is_told(store: Store, other: Store, known: bytes | None) -> None:
    if known is not None:
        store.set("a", known)
    call = Blocked(lambda: store.wait_change("a", known))
    assert call.still()
    other.set("unrelated", "")
    if known is not None:
        other.set("a", known)
    assert call.still()
    other.set("a", "2")
    assert call.result() is True


def test_a_deletion_is_a_change(store: Store, other: Store) -> None:
    store.set("a", "1")
    call = Blocked(lambda: store.wait_change("a", b"1"))
    assert call.still()
    other.delete_key("a")
    assert call.result() is True


def test_no_change_in_time_is_no_error(store: Store) -> None:
    assert store.wait_change("a", None, SOON) is False
    store.set("a", "1")
    store.set_timeout(SOON)
    assert store.wait_change("a", b"1") is False


def test_a_change_is_told_to_all_who_wait_for_it(store: Store, other: Store) -> None:
    calls = [Blocked(lambda s=s: s.wait_change("a", None)) for s in (store, other) * 5]  # type: ignore[misc]
    assert calls[-1].still()
    store.compare_set("a", "", "1")
    assert [call.result() for call in calls] == [True] * 10


def test_a_counter_is_followed_by_its_changes(store: Store, other: Store) -> None:
    """Whoever waits for the change of what it last saw reaches the last value, whatever it skips."""
    adding = Blocked(lambda: [other.add("n", 1) for _ in range(20)])
    seen: bytes | None = None
    while seen != b"20":
        assert store.wait_change("n", seen)
        seen = store.peek("n")
    adding.result()


# -- add, append and compare_set --------------------------------------------------------------------


def test_add_counts_from_nothing(store: Store, other: Store) -> None:
    assert store.add("n", 5) == 5
    assert other.add("n", -7) == -2
    assert store.add("n", 0) == -2
    assert store.get("n") == b"-2"


def test_add_counts_from_what_was_set(store: Store) -> None:
    store.set("n", "40")
    assert store.add("n", 2) == 42


def test_half_of_a_number_is_not_added(store: Store) -> None:
    for amount in (1.5, "1"):
        with pytest.raises(TypeError):
            store.add("n", amount)  # type: ignore[arg-type]
    assert not store.has("n")


@pytest.mark.parametrize("value", [b"\xff", b"", b"1_0", b"x"])
def test_add_to_what_is_no_number_is_refused(store: Store, value: bytes) -> None:
    store.set("n", value)
    with pytest.raises(StoreError, match=r"n'.*no number"):
        store.add("n", 1)
    assert store.get("n") == value


def test_a_counter_does_not_wrap_around(store: Store) -> None:
    assert store.add("n", 2**62) == 2**62
    with pytest.raises(StoreError, match=r"n'.*64 bits"):
        store.add("n", 2**62)
    assert store.get("n") == b"%d" % 2**62


def test_concurrent_adds_lose_nothing_and_see_every_total_once(store: Store, other: Store) -> None:
    threads, times = 8, 10

    def count(number: int) -> list[int]:
        mine = store if number % 2 else other
        return [mine.add("n", 1) for _ in range(times)]

    with ThreadPoolExecutor(threads) as pool:
        totals = [total for each in pool.map(count, range(threads)) for total in each]
    assert sorted(totals) == list(range(1, threads * times + 1))
    assert store.get("n") == str(threads * times).encode()


def test_what_was_written_is_seen_by_others_at_once(store: Store, other: Store) -> None:
    for number in range(20):
        value = b"%d" % number + bytes(100_000)  # large enough to be on its way for a while
        store.set("a", value)
        assert other.get("a") == value


def test_append_adds_at_the_end(store: Store, other: Store, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.id == "torch_file":
        with pytest.raises(StoreError, match="FileStore of torch may lose what is appended"):
            store.append("a", "x")
        return
    store.append("a", "x")
    other.append("a", "x")
    store.append("a", b"\xff")
    other.append("a", "")
    assert store.get("a") == b"xx\xff"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: (store if n % 2 else other).append("b", b"x"), range(40)))
    assert store.get("b") == b"x" * 40


def test_compare_set_where_the_value_is_as_expected(store: Store) -> None:
    store.set("a", "old")
    assert store.compare_set("a", "old", b"\xff") == b"\xff"
    assert store.get("a") == b"\xff"
    store.set("a", "")
    assert store.compare_set("a", "", "new") == b"new"
    assert store.get("a") == b"new"


def test_compare_set_where_it_is_not(store: Store) -> None:
    store.set("a", "other")
    assert store.compare_set("a", "old", "new") == b"other"
    assert store.compare_set("a", "", "new") == b"other"
    assert store.get("a") == b"other"
    store.set("a", "")
    assert store.compare_set("a", "old", "new") == b""
    assert store.get("a") == b""


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


# -- what stands on it ------------------------------------------------------------------------------


def test_the_address_of_rank_0_is_agreed_on_over_a_store(store: Store, other: Store) -> None:
    call = Blocked(lambda: RendezvousStoreInfo.build(1, other))
    info = RendezvousStoreInfo.build(0, store, local_addr="127.0.0.1", server_port=4321)
    assert call.result() == info
    assert (info.master_addr, info.master_port, info.port) == ("127.0.0.1", 4321, 4321)


def test_rank_0_finds_a_free_port_by_itself(store: Store) -> None:
    info = RendezvousStoreInfo.build(0, store, local_addr="127.0.0.1")
    assert info.master_port > 0
    assert RendezvousStoreInfo.build(1, store) == info


def test_a_store_of_ours_is_taken_as_it_is(store: Store) -> None:
    assert as_store(store) is store


def test_nothing_is_left_of_a_wait_that_is_over(store: Store) -> None:
    def ours() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name.startswith(("etcd-", "tcp-store"))}

    store.check(["a"])  # a client's one thread starts with its first call
    before = ours()
    with pytest.raises(StoreTimeoutError):
        store.wait(["a"], SOON)
    store.wait_change("a", None, SOON)
    wait_until(lambda: ours() <= before, what="the end of what the wait had started")
