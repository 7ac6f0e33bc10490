"""Watches over everything that breaks them: every change once, in order, and every end told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.etcd import EtcdServer
from support.inbox import Inbox
from support.mute import MuteServer
from support.relay import Relay

from elastic.etcd import (
    Client,
    ClientClosed,
    Compacted,
    Delete,
    Event,
    HistoryLost,
    Put,
    Unavailable,
    WatchBatch,
    WatchEnded,
    WatchInterrupted,
    WatchResumed,
    key,
    prefix,
)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def relay(etcd: EtcdServer) -> Iterator[Relay]:
    with Relay((etcd.host, etcd.port)) as relay:
        yield relay


@pytest.fixture
def remote(relay: Relay) -> Iterator[Client]:
    """A client whose connection goes through `relay`."""
    with Client([relay.endpoint]) as client:
        yield client


def values(events: list[Event]) -> list[bytes]:
    return [event.kv.value for event in events]


def test_events_from_a_revision_on(each_etcd: EtcdServer, inbox: Inbox, space: bytes) -> None:
    with Client([each_etcd.endpoint]) as client:
        client.put(space + b"a", b"0")
        start = client.put(space + b"a", b"1")
        client.put(space + b"a", b"2")
        client.watch([prefix(space)], into=inbox, start_revision=start)
        assert values(inbox.events(2)) == [b"1", b"2"]
        client.delete(space + b"a")
        batch = inbox.expect(WatchBatch)
        assert [(event.deleted, event.kv.key) for event in batch.events] == [(True, space + b"a")]
        assert batch.revision == batch.events[-1].kv.mod_revision


def test_a_read_and_a_watch_from_its_revision_leave_no_gap(
    client: Client, inbox: Inbox, space: bytes
) -> None:
    client.put(space + b"a", b"0")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            client.put(space + b"a", b"%d" % number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        snapshot = client.get_prefix(space)
        client.watch([prefix(space)], into=inbox, start_revision=snapshot.revision + 1)
        seen = [int(value) for value in values(inbox.events(50))]
    finally:
        stop.set()
        writer.join()
    first = int(snapshot.kvs[0].value) + 1
    assert seen == list(range(first, first + len(seen)))


def test_a_revision_comes_whole_and_in_every_range_that_it_touches(
    each_etcd: EtcdServer, inbox: Inbox, space: bytes
) -> None:
    with Client([each_etcd.endpoint]) as client:
        base = client.put(space + b"other", b"")
        ranges = [prefix(space + b"a/"), key(space + b"b")]
        client.watch([ranges[0], space + b"b"], into=inbox, start_revision=base + 1)
        puts = [Put(space + b"a/%d" % number, b"x") for number in range(60)]
        made = client.txn([], [*puts, Put(space + b"b", b"y"), Put(space + b"other", b"z")])
        batches = [inbox.expect(WatchBatch), inbox.expect(WatchBatch)]
        assert {batch.keys: (batch.revision, len(batch.events)) for batch in batches} == {
            ranges[0]: (made.revision, 60),
            ranges[1]: (made.revision, 1),
        }
        client.txn([], [Delete(space + b"b"), Delete(prefix(space + b"a/"))])
        assert sorted(len(inbox.expect(WatchBatch).events) for _ in range(2)) == [1, 60]


def test_large_history_arrives_in_order(each_etcd: EtcdServer, inbox: Inbox, space: bytes) -> None:
    # More than the server puts into one message, in one transaction and in many.
    with Client([each_etcd.endpoint]) as client:
        start = client.put(space + b"a", b"")
        for number in range(12):
            client.put(space + b"%02d" % number, bytes(1_000_000))
        client.watch([prefix(space)], into=inbox, start_revision=start)
        revisions = [event.kv.mod_revision for event in inbox.events(13, seconds=40)]
        assert revisions == list(range(start, start + 13))


def test_cut_connections_lose_and_repeat_nothing(
    remote: Client, relay: Relay, client: Client, inbox: Inbox, space: bytes
) -> None:
    start = client.put(space + b"n", b"-1")
    remote.watch([prefix(space), key(space + b"none")], into=inbox, start_revision=start + 1)
    events: list[Event] = []
    for number in range(60):
        client.put(space + b"n", b"%d" % number)
        if number == 4:
            events += inbox.events(5)  # it is connected, for the first cut at least
        if number % 10 == 5:
            relay.cut()
    assert values(events + inbox.events(55)) == [b"%d" % number for number in range(60)]
    assert inbox.count(WatchInterrupted) >= 1
    assert inbox.count(WatchResumed) in (inbox.count(WatchInterrupted), inbox.count(WatchInterrupted) - 1)


def test_an_outage_is_told_once_and_so_is_its_end(
    remote: Client, relay: Relay, client: Client, inbox: Inbox, space: bytes
) -> None:
    watch = remote.watch([prefix(space)], into=inbox, start_revision=client.put(space + b"a", b"1"))
    inbox.expect(WatchBatch)
    relay.refuse()
    interrupted = inbox.expect(WatchInterrupted)
    assert interrupted.watch is watch
    assert isinstance(interrupted.error, Unavailable)
    client.put(space + b"a", b"2")
    time.sleep(1.5)  # several attempts to reconnect
    assert inbox.count(WatchInterrupted) == 1
    assert inbox.count(WatchResumed) == 0
    relay.heal()
    inbox.find(WatchResumed)
    assert values(inbox.events(1)) == [b"2"]
    assert inbox.count(WatchInterrupted) == inbox.count(WatchResumed) == 1


@pytest.mark.parametrize("fault", ["pause", "deafen"])
def test_a_silent_connection_is_noticed(
    remote: Client, relay: Relay, client: Client, inbox: Inbox, space: bytes, fault: str
) -> None:
    remote.watch([prefix(space)], into=inbox, start_revision=client.put(space + b"a", b"1"))
    assert values(inbox.events(1)) == [b"1"]
    getattr(relay, fault)()
    client.put(space + b"a", b"2")
    assert isinstance(inbox.expect(WatchInterrupted).error, Unavailable)
    relay.heal()
    inbox.find(WatchResumed)
    assert values(inbox.events(1)) == [b"2"]


def test_a_server_that_is_silent_but_answers_pings_is_noticed_too(inbox: Inbox) -> None:
    with MuteServer() as mute, Client([mute.endpoint]) as client:
        client.watch([b"a"], into=inbox)
        assert "silent" in str(inbox.expect(WatchInterrupted).error)
        # It was asked for a sign of life before it was given up.
        assert [request.WhichOneof("request_union") for request in mute.requests[:2]] == [
            "create_request",
            "progress_request",
        ]


def test_an_idle_watch_is_not_taken_for_a_silent_one(client: Client, inbox: Inbox, space: bytes) -> None:
    client.watch([prefix(space)], into=inbox)
    assert inbox.is_quiet(8)


def test_a_server_that_is_killed_and_comes_back(etcd_server: Callable[..., EtcdServer], inbox: Inbox) -> None:
    server = etcd_server()
    with Client([server.endpoint], timeout=20) as client:
        client.watch([prefix(b"a")], into=inbox, start_revision=client.put(b"a", b"1"))
        assert values(inbox.events(1)) == [b"1"]
        server.kill()
        inbox.expect(WatchInterrupted)
        server.start()
        client.put(b"a", b"2")
        assert values(inbox.events(1)) == [b"2"]
        assert inbox.count(WatchResumed) == 1


def test_no_server_at_all_is_told_at_once_and_the_watch_goes_on_trying(inbox: Inbox) -> None:
    with Client(["127.0.0.1:1"]) as client:
        client.watch([b"a"], into=inbox)
        assert "127.0.0.1:1" in str(inbox.expect(WatchInterrupted).error)
        assert inbox.is_quiet(0.5)


def test_compaction_ends_a_watch(etcd_server: Callable[..., EtcdServer], inbox: Inbox) -> None:
    server = etcd_server()
    with Client([server.endpoint]) as client:
        revision = max(client.put(b"a", b"%d" % number) for number in range(5))
        client.compact(revision)
        client.watch([b"b", b"a"], into=inbox, start_revision=2)
        ended = inbox.expect(WatchEnded)
        assert isinstance(ended.error, Compacted)
        assert ended.error.compact_revision == revision
        assert inbox.is_quiet(0.3)


def test_compaction_during_an_outage_ends_a_watch(
    etcd_server: Callable[..., EtcdServer], inbox: Inbox
) -> None:
    server = etcd_server()
    with (
        Relay((server.host, server.port)) as relay,
        Client([relay.endpoint]) as remote,
        Client([server.endpoint]) as client,
    ):
        remote.watch([b"a"], into=inbox, start_revision=client.put(b"a", b"0"))
        inbox.expect(WatchBatch)
        relay.refuse()
        client.compact(max(client.put(b"a", b"%d" % number) for number in range(5)))
        relay.heal()
        assert isinstance(inbox.find(WatchEnded).error, Compacted)


def test_a_wiped_store_ends_a_watch(etcd_server: Callable[..., EtcdServer], inbox: Inbox) -> None:
    server = etcd_server()
    with Client([server.endpoint], timeout=20) as client:
        for number in range(5):
            client.put(b"a", b"%d" % number)
        client.watch([b"a"], into=inbox, start_revision=2)
        inbox.events(5)
        server.kill()
        server.wipe()
        server.start()
        ended = inbox.find(WatchEnded)
        assert isinstance(ended.error, HistoryLost)
        assert "wiped" in str(ended.error)


def test_closing_is_prompt_and_final(client: Client, inbox: Inbox, space: bytes) -> None:
    # Not from a revision that another test may have compacted: that ends a watch by itself.
    watch = client.watch([prefix(space)], into=inbox, start_revision=client.put(space + b"a", b"0") + 1)
    inbox_length = len(inbox.items)
    started = time.monotonic()
    watch.close()
    watch.close()
    assert time.monotonic() - started < 5
    client.put(space + b"a", b"1")
    assert inbox.is_quiet(0.3)
    assert len(inbox.items) == inbox_length


def test_a_watch_can_be_closed_from_its_own_sink(client: Client, space: bytes) -> None:
    closed = threading.Event()

    class Closing:
        def put(self, item: object, /) -> None:
            assert isinstance(item, WatchBatch)
            item.watch.close()
            closed.set()

    client.watch([prefix(space)], into=Closing(), start_revision=client.put(space + b"a", b"1"))
    assert closed.wait(10)


def test_a_fault_in_the_sink_is_not_swallowed(
    client: Client, space: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[threading.ExceptHookArgs] = []
    told: list[object] = []
    done = threading.Event()

    def hook(arguments: threading.ExceptHookArgs) -> None:
        seen.append(arguments)
        done.set()

    class Broken:
        def put(self, item: object, /) -> None:
            told.append(item)
            if isinstance(item, WatchBatch):
                raise RuntimeError("broken")

    monkeypatch.setattr(threading, "excepthook", hook)
    client.watch([prefix(space)], into=Broken(), start_revision=client.put(space + b"a", b"1"))
    assert done.wait(10)
    assert str(seen[0].exc_value) == "broken"
    assert isinstance(told[-1], WatchEnded)


def test_wrong_arguments(client: Client, inbox: Inbox, space: bytes) -> None:
    with pytest.raises(ValueError, match="at least one"):
        client.watch([], into=inbox)
    with pytest.raises(ValueError, match="start at revision -1"):
        client.watch([space], into=inbox, start_revision=-1)
    client.close()
    with pytest.raises(ClientClosed):
        client.watch([space], into=inbox)
