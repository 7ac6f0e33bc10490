"""The calls of the client against real servers: their answers, their time, and what may be repeated."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.etcd import EtcdServer, wait_until
from support.inbox import Inbox
from support.relay import Relay

from elastic.etcd import (
    Client,
    ClientClosed,
    Compacted,
    DeadlineExceeded,
    Delete,
    DeleteResult,
    EtcdError,
    ForkedClient,
    Get,
    GetResult,
    KeyValue,
    LeaseNotFound,
    Put,
    PutResult,
    Rejected,
    RequestTooLarge,
    TooManyOps,
    Txn,
    TxnResult,
    Unavailable,
    absent,
    created_at,
    exists,
    lease_is,
    modified_at,
    prefix,
    value_is,
    version_is,
)


@pytest.fixture
def each(each_etcd: EtcdServer) -> Iterator[Client]:
    with Client([each_etcd.endpoint]) as client:
        yield client


@pytest.fixture
def relay(etcd: EtcdServer) -> Iterator[Relay]:
    with Relay((etcd.host, etcd.port)) as relay:
        yield relay


@pytest.fixture
def remote(relay: Relay) -> Iterator[Client]:
    """A client whose connection goes through `relay`."""
    with Client([relay.endpoint], attempt_timeout=0.5) as client:
        yield client


def value_of(client: Client, name: bytes) -> bytes | None:
    found = client.get(name)
    return None if found is None else found.value


# What the calls answer


def test_keys_and_revisions(each: Client, space: bytes) -> None:
    first = each.put(space + b"a", b"1")
    second = each.put(space + b"a", b"\x00\xff")
    assert second > first
    assert each.get(space + b"a") == KeyValue(space + b"a", b"\x00\xff", first, second, 2, 0)
    past = each.get(space + b"a", revision=first)
    assert past is not None
    assert past.value == b"1"
    each.put(space + b"b", b"2")
    snapshot = each.get_prefix(space)
    assert [kv.key for kv in snapshot.kvs] == [space + b"a", space + b"b"]
    assert snapshot.revision >= second
    assert each.get_prefix(space, limit=1).more
    assert [kv.value for kv in each.get_prefix(space, keys_only=True).kvs] == [b"", b""]
    assert each.get(space + b"a", serializable=True) is not None
    assert each.delete(space + b"a").deleted == 1
    assert each.delete(space + b"a").deleted == 0
    assert each.delete_prefix(space).deleted == 1
    assert each.get(space + b"b") is None


def test_a_transaction_answers_with_typed_results_and_its_revision(each: Client, space: bytes) -> None:
    a, b = space + b"a", space + b"b"
    made = each.txn([absent(prefix(space))], [Put(a, b"1"), Put(b, b"2"), Get(prefix(space))])
    assert made.succeeded
    assert [type(result) for result in made.responses] == [PutResult, PutResult, GetResult]
    seen = made.responses[2]
    assert isinstance(seen, GetResult)
    assert [(kv.key, kv.mod_revision) for kv in seen.kvs] == [(a, made.revision), (b, made.revision)]

    failed = each.txn([absent(a)], [Put(a, b"other")], [Get(a)])
    assert not failed.succeeded
    # A watch from here on misses nothing, though nothing was written.
    assert failed.revision >= made.revision

    nested = each.txn([exists(a)], [Txn((value_is(a, b"1"),), (Delete(a), Put(b, b"3")), (Get(a),)), Get(b)])
    assert nested.responses[0] == TxnResult(
        True, nested.revision, (DeleteResult(1), PutResult(nested.revision))
    )
    assert value_of(each, b) == b"3"


def test_every_compare(each: Client, space: bytes) -> None:
    name = space + b"a"
    lease = each.lease_grant(60)
    created = each.put(name, b"1")
    modified = each.put(name, b"2", lease=lease.id)
    truths = [
        exists(name),
        created_at(name, created),
        modified_at(name, modified),
        value_is(name, b"2"),
        version_is(name, 2),
        lease_is(name, lease.id),
    ]
    assert each.txn(truths, []).succeeded
    falsehoods = [
        absent(name),
        created_at(name, modified),
        modified_at(name, created),
        value_is(name, b"1"),
        version_is(name, 1),
        lease_is(name, 0),
        absent(prefix(space)),
        exists(space + b"b"),
    ]
    assert [each.txn([compare], []).succeeded for compare in falsehoods] == [False] * len(falsehoods)


def test_refusals_are_typed_and_final(each: Client, space: bytes) -> None:
    started = time.monotonic()
    with pytest.raises(TooManyOps, match="too many operations"):
        each.txn([], [Put(space + b"%d" % number, b"") for number in range(129)])
    with pytest.raises(RequestTooLarge):
        each.put(space + b"a", bytes(2_000_000))
    with pytest.raises(RequestTooLarge):
        each.put(space + b"a", bytes(1_600_000))
    with pytest.raises(LeaseNotFound):
        each.put(space + b"a", b"", lease=12345)
    with pytest.raises(Rejected, match="duplicate key") as caught:
        each.txn([], [Put(space + b"a", b"1"), Put(space + b"a", b"2")])
    assert caught.value.applied == "no"
    # None of them was tried until the deadline.
    assert time.monotonic() - started < 8


def test_many_large_values_come_in_one_answer(each: Client, space: bytes) -> None:
    for number in range(6):
        each.put(space + b"%d" % number, bytes(1_000_000))
    assert sum(len(kv.value) for kv in each.get_prefix(space).kvs) == 6_000_000


def test_compaction(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    with Client([server.endpoint]) as client:
        old = client.put(b"a", b"1")
        new = client.put(b"a", b"2")
        client.compact(new)
        client.compact(new)
        with pytest.raises(Compacted):
            client.get(b"a", revision=old)


def test_leases(each: Client, space: bytes) -> None:
    lease = each.lease_grant(59.2)
    assert lease.ttl == 60
    each.put(space + b"a", b"", lease=lease.id)
    info = each.lease_time_to_live(lease.id)
    assert (info.granted, info.keys) == (60, (space + b"a",))
    assert 0 < info.remaining <= 60
    assert each.keep_alive_once(lease.id) == 60
    each.lease_revoke(lease.id)
    each.lease_revoke(lease.id)
    assert each.get(space + b"a") is None
    assert each.keep_alive_once(lease.id) == 0
    with pytest.raises(LeaseNotFound):
        each.lease_time_to_live(lease.id)
    with pytest.raises(ValueError, match="at least one second"):
        each.lease_grant(0)


def test_the_cluster_says_who_it_is(each: Client, each_etcd: EtcdServer) -> None:
    status = each.status()
    [member] = each.member_list()
    assert status.leader == status.member_id == member.id
    assert status.endpoint == each_etcd.endpoint
    assert member.client_urls == (each_etcd.url,)


def test_compare_and_set(each: Client, space: bytes) -> None:
    name = space + b"a"
    won = each.compare_and_set(name, b"me", expected=0)
    assert won.succeeded
    assert won.current is not None
    assert (won.current.value, won.current.mod_revision) == (b"me", won.revision)
    lost = each.compare_and_set(name, b"you", expected=0)
    assert not lost.succeeded
    assert lost.current == won.current
    assert each.compare_and_set(name, b"me again", expected=won.revision).succeeded
    assert not each.compare_and_set(space + b"none", b"x", expected=won.revision).succeeded


# Arguments that cannot be right


@pytest.mark.parametrize(
    ("endpoints", "fault"),
    [([], "no etcd endpoint"), (["a:b"], "port"), (["http://a", "https://b"], "mix")],
)
def test_wrong_endpoints_are_refused(endpoints: list[str], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Client(endpoints)


def test_a_bare_text_is_not_a_list_of_endpoints() -> None:
    with pytest.raises(TypeError, match="parse_endpoints"):
        Client("localhost:2379")


def test_a_scheme_said_once_holds_for_the_list() -> None:
    with Client(["https://a:1,b:2"]) as client:
        assert [endpoint.secure for endpoint in client.endpoints] == [True, True]


# Time


@pytest.mark.parametrize("seconds", [0.05, 0.6, 1.5])
def test_no_call_outlives_its_timeout(remote: Client, relay: Relay, space: bytes, seconds: float) -> None:
    remote.put(space + b"a", b"")
    relay.pause()
    calls: list[Callable[[], object]] = [
        lambda: remote.get(space + b"a", timeout=seconds),
        lambda: remote.put(space + b"a", b"", timeout=seconds),
        lambda: remote.txn([], [Put(space + b"a", b"")], timeout=seconds),
        lambda: remote.keep_alive_once(1, timeout=seconds),
        lambda: remote.check(timeout=seconds),
    ]
    for call in calls:
        started = time.monotonic()
        with pytest.raises(Unavailable):
            call()
        # check() looks at what listens there when its time is up.
        assert time.monotonic() - started < seconds + 4


def test_a_server_that_nobody_listens_at(space: bytes) -> None:
    with (
        Client(["127.0.0.1:1"]) as client,
        pytest.raises(Unavailable, match=r"127\.0\.0\.1:1.*attempts") as caught,
    ):
        client.put(space, b"", timeout=0.5)
    assert caught.value.applied == "no"


def test_a_call_waits_for_a_server_that_comes_back(remote: Client, relay: Relay, space: bytes) -> None:
    remote.put(space + b"a", b"1")
    relay.refuse()
    with pytest.raises(Unavailable):
        remote.put(space + b"a", b"2", timeout=0.3)
    healer = threading.Timer(1.0, relay.heal)
    healer.start()
    assert remote.put(space + b"a", b"3", timeout=20) > 0
    healer.join()


# What may be repeated


def test_a_write_that_must_not_happen_twice_says_maybe(relay: Relay, client: Client, space: bytes) -> None:
    name = space + b"a"
    # An attempt is long enough for the request to be carried out before it is given up.
    with Client([relay.endpoint], attempt_timeout=3) as remote:
        remote.get(name)
        relay.deafen()
        with pytest.raises(DeadlineExceeded) as caught:
            remote.txn([absent(name)], [Put(name, b"mine")], timeout=10)
    assert caught.value.applied == "maybe"
    # It was: the request went through, and only the answer was lost. It was not sent again.
    assert value_of(client, name) == b"mine"
    kv = client.get(name)
    assert kv is not None
    assert kv.version == 1


def test_a_read_that_fails_says_no(remote: Client, relay: Relay, space: bytes) -> None:
    remote.get(space)
    relay.pause()
    with pytest.raises(Unavailable) as caught:
        remote.get(space, timeout=0.6)
    assert caught.value.applied == "no"


def test_a_put_is_repeated(remote: Client, relay: Relay, client: Client, space: bytes) -> None:
    name = space + b"a"
    remote.get(name)
    relay.deafen()
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(remote.put, name, b"1", timeout=20)
        wait_until(lambda: client.get(name) is not None, what="the lost write")
        relay.cut()
        relay.heal()
        revision = outcome.result(30)
    kv = client.get(name)
    assert kv is not None
    assert kv.version > 1
    assert kv.mod_revision == revision


def test_a_put_without_an_answer_says_maybe(
    remote: Client, relay: Relay, client: Client, space: bytes
) -> None:
    name = space + b"a"
    remote.get(name)
    relay.deafen()
    with pytest.raises(Unavailable) as caught:
        remote.put(name, b"1", timeout=4)
    assert caught.value.applied == "maybe"
    wait_until(lambda: value_of(client, name) == b"1", what="the write, whose answer was lost")


def test_the_winner_of_a_compare_and_set_is_told_so_though_the_answer_was_lost(
    remote: Client, relay: Relay, client: Client, space: bytes
) -> None:
    name = space + b"a"
    remote.get(name)
    relay.deafen()
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(remote.compare_and_set, name, b"owner-1", expected=0, timeout=20)
        wait_until(lambda: client.get(name) is not None, what="the lost write")
        relay.cut()
        relay.heal()
        result = outcome.result(30)
    assert result.succeeded
    kv = client.get(name)
    assert kv is not None
    assert (kv.version, kv.mod_revision) == (1, result.revision)


def test_the_loser_of_a_compare_and_set_is_told_so_too(
    remote: Client, relay: Relay, client: Client, space: bytes
) -> None:
    name = space + b"a"
    remote.get(name)
    relay.refuse()
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(remote.compare_and_set, name, b"owner-1", expected=0, timeout=20)
        client.put(name, b"owner-2")
        relay.heal()
        result = outcome.result(30)
    assert not result.succeeded
    assert result.current is not None
    assert result.current.value == b"owner-2"


def test_a_write_held_up_on_the_way_cannot_undo_a_later_one_under_a_condition(
    etcd: EtcdServer, space: bytes
) -> None:
    name = space + b"a"
    target = (etcd.host, etcd.port)
    with (
        Relay(target) as one,
        Relay(target) as other,
        Client([one.endpoint, other.endpoint], attempt_timeout=0.5) as client,
    ):
        used = one if client.status().endpoint == one.endpoint else other
        used.pause()
        # The first attempt waits in the relay; the second one, over the other endpoint, wins.
        first = client.compare_and_set(name, b"first", expected=0)
        second = client.compare_and_set(name, b"second", expected=first.revision)
        assert first.succeeded
        assert second.succeeded
        used.heal()
        time.sleep(0.5)  # the late request arrives now, and nothing tells when it has failed
        kv = client.get(name)
        assert kv is not None
        assert (kv.value, kv.version) == (b"second", 2)


def test_a_repeated_grant_leaves_one_lease(remote: Client, relay: Relay, client: Client) -> None:
    remote.get(b"a")
    relay.deafen()
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(remote.lease_grant, 60, lease_id=4242, timeout=20)
        wait_until(lambda: client.keep_alive_once(4242) > 0, what="the lost grant")
        relay.cut()
        relay.heal()
        lease = outcome.result(30)
    assert lease.id == 4242
    client.lease_revoke(4242)


# Threads, forks, closing


def test_sixteen_threads_count_together(each: Client, space: bytes) -> None:
    name = space + b"counter"
    each.put(name, b"0")

    def count(times: int) -> None:
        while times:
            kv = each.get(name)
            assert kv is not None
            next_value = b"%d" % (int(kv.value) + 1)
            if each.txn([modified_at(name, kv.mod_revision)], [Put(name, next_value)]).succeeded:
                times -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(count, [5] * 16))
    assert value_of(each, name) == b"80"


def test_answers_go_to_the_thread_that_asked(each: Client, space: bytes) -> None:
    def ask(number: int) -> None:
        name = space + b"%d" % number
        for turn in range(40):
            each.put(name, b"%d" % turn)
            assert value_of(each, name) == b"%d" % turn

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))


def test_closing_ends_calls_and_refuses_new_ones(relay: Relay, space: bytes) -> None:
    client = Client([relay.endpoint], timeout=60, attempt_timeout=30)
    client.get(space)
    relay.pause()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.get, space)
        wait_until(waiting.running)
        time.sleep(0.1)  # into the call itself: nothing shows when it is on the wire
        client.close()
        with pytest.raises(ClientClosed):
            waiting.result(20)
    with pytest.raises(ClientClosed, match="closed"):
        client.get(space)
    client.close()


def test_a_closed_client_leaves_no_thread(etcd: EtcdServer, space: bytes) -> None:
    before = set(threading.enumerate())
    inbox = Inbox()
    with Client([etcd.endpoint]) as client:
        client.watch([prefix(space)], into=inbox, start_revision=0)
        client.keep_lease(5, into=inbox)
        assert set(threading.enumerate()) - before
    wait_until(lambda: set(threading.enumerate()) <= before, what="every thread ended")
    assert inbox.items == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told_and_the_parent_is_unharmed(client: Client, space: bytes) -> None:
    inbox = Inbox()
    watch = client.watch([prefix(space)], into=inbox)
    keeper = client.keep_lease(10, into=inbox)
    client.put(space + b"a", b"1")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.get(space)
        except ForkedClient:
            watch.close()
            keeper.close()
            client.close()
            code = 0
        except EtcdError:
            code = 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    ended = status = 0
    while not ended and time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.02)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0
    assert keeper.alive()
    client.put(space + b"a", b"2")
    assert [event.kv.value for event in inbox.events(1)][-1] in (b"1", b"2")
