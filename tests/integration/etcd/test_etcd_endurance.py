"""One client for long: watches that come and go leave nothing behind, busy threads get their own answers."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.etcd import wait_until
from support.inbox import Inbox

from elastic.etcd import Client, WatchBatch, prefix

CYCLES = 1000


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_a_thousand_watches_leave_no_thread_and_no_descriptor(client: Client, space: bytes) -> None:
    revision = client.put(space, b"")

    def cycle() -> None:
        nonlocal revision
        inbox = Inbox()
        # From the future: etcd takes a tenth of a second to look for what is past.
        watch = client.watch([prefix(space)], into=inbox, start_revision=revision + 1)
        revision = client.put(space, b"")
        assert inbox.expect(WatchBatch).revision == revision
        watch.close()

    for _ in range(20):  # gRPC's own threads and connections are there after that
        cycle()
    python, native, files = threading.active_count(), native_threads(), descriptors()
    most = 0
    for number in range(CYCLES):
        cycle()
        if number % 100 == 0:
            most = max(most, threading.active_count())
    # The last stream's threads may still be on their way out.
    wait_until(lambda: threading.active_count() <= python, what="no more Python threads than before")
    wait_until(lambda: native_threads() <= native, what="no more threads of any kind than before")
    wait_until(lambda: descriptors() <= files, what="no more descriptors than before")
    assert most <= python + 4, "none was left over for a while, either"
    print(
        f"{CYCLES} watches: {python} Python threads, {native} threads, {files} descriptors before and after"
    )


@pytest.mark.parametrize(
    "calls", [1000, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_answers_of_two_busy_threads_are_never_mixed(client: Client, space: bytes, calls: int) -> None:
    """Every answer must be the one to the question that its thread asked, whatever the other does."""

    def work(own: bytes) -> int:
        name, lease = space + own, client.lease_grant(60)
        mine = {number: name + b"/%d" % number for number in range(7)}
        revisions = dict.fromkeys(mine, 0)
        checked = 0

        def put(turn: int, number: int) -> None:
            value = b"%s %d" % (own, turn)
            revisions[number] = client.put(mine[number], value, lease=lease.id)
            found = client.get(mine[number])
            assert found is not None
            assert (found.value, found.mod_revision) == (value, revisions[number])

        def swap(turn: int, number: int) -> None:
            done = client.compare_and_set(
                mine[number], b"%s swap %d" % (own, turn), expected=revisions[number]
            )
            assert done.succeeded
            revisions[number] = done.revision
            assert not client.compare_and_set(mine[number], own, expected=done.revision + 1).succeeded

        def look(_turn: int, _number: int) -> None:
            assert all(kv.value.startswith(own) for kv in client.get_prefix(name + b"/").kvs)
            assert client.keep_alive_once(lease.id) == lease.ttl

        def remove(_turn: int, number: int) -> None:
            client.delete(mine[number])
            revisions[number] = 0
            assert client.get(mine[number]) is None

        pairs: list[Callable[[int, int], None]] = [
            put,
            look,
            look,
            swap,
            look,
            look,
            remove,
            look,
            look,
            look,
        ]
        while checked < calls:
            turn = checked // 2
            pairs[turn % len(pairs)](turn, turn % len(mine))
            checked += 2
        client.lease_revoke(lease.id)
        return checked

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(work, [b"one", b"two"]))
    assert done == [calls, calls]


def test_a_client_forgets_what_was_closed_at_once(client: Client, space: bytes) -> None:
    def come_and_go() -> tuple[weakref.ref[object], weakref.ref[object]]:
        watch = client.watch([space], into=Inbox())
        watch.close()
        keeper = client.keep_lease(5, into=Inbox())
        keeper.close(revoke=False)
        return weakref.ref(watch), weakref.ref(keeper)

    left = [reference for _ in range(20) for reference in come_and_go()]

    def gone() -> bool:
        gc.collect()
        return not any(reference() for reference in left)

    wait_until(gone, what="nothing held by the client")
