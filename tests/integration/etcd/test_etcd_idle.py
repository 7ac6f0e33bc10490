"""What a client costs while nothing happens."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.effort import measure_effort
from support.etcd import EtcdServer, wait_until

from elastic.etcd import Client, EtcdError, LeaseKeeper, Watch, prefix

Items = queue.SimpleQueue  # what a sink may be


def test_an_idle_client_sleeps(etcd: EtcdServer, space: bytes) -> None:
    """Two watches that ask for progress and a lease that is kept: no thread wakes up but for these."""
    into: Items[object] = Items()
    before = {task.name for task in Path("/proc/self/task").iterdir()}
    with Client([etcd.endpoint]) as client:
        client.watch([prefix(space)], into=into, start_revision=client.put(space + b"a", b"1") + 1)
        client.watch([space + b"b"], into=into)
        client.keep_lease(10, into=into)
        time.sleep(1)
        now = {task.name for task in Path("/proc/self/task").iterdir()}
        assert len(now - before) == 1, "a client has one thread"
        effort = measure_effort(os.getpid(), seconds=6, without=before)  # those of other tests may still end
    # The old polling woke up seventy times a second.
    assert effort.others < 4
    assert into.empty()


def test_a_sink_must_not_call_etcd_but_may_close_what_called_it(client: Client, space: bytes) -> None:
    refused: Items[object] = Items()

    class Sink:
        def put(self, item: object) -> None:
            try:
                client.get(space)
            except RuntimeError as error:
                refused.put(error)
            watch.close()

    watch: Watch = client.watch([prefix(space)], into=Sink())
    wait_until(lambda: bool(client.put(space + b"a", b"1")) and not refused.empty(), what="the refusal")
    assert "sink" in str(refused.get())
    time.sleep(0.2)
    client.put(space + b"a", b"2")
    assert client.get(space + b"a")
    assert refused.empty(), "a closed watch puts nothing more"


def test_closing_while_calls_run_ends_them_and_the_thread(etcd: EtcdServer, space: bytes) -> None:
    for _ in range(5):
        client = Client([etcd.endpoint])
        ended: Items[object] = Items()

        def call(client: Client = client, ended: Items[object] = ended) -> None:
            try:
                while True:
                    client.get(space)
            except EtcdError as error:
                ended.put(type(error).__name__)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        client.close()
        for thread in threads:
            thread.join(10)
        assert [ended.get(timeout=1) for _ in threads] == ["ClientClosed"] * 4
    wait_until(
        lambda: not [each for each in threading.enumerate() if each.name == "etcd-client"],
        what="the end of the threads",
    )


@pytest.mark.parametrize("owner", ["watch", "lease"])
def test_what_is_closed_at_once_ends_at_once(client: Client, space: bytes, owner: str) -> None:
    """Also if its task had no time to begin."""
    make: dict[str, Callable[[], Watch | LeaseKeeper]] = {
        "watch": lambda: client.watch([prefix(space)], into=Items()),
        "lease": lambda: client.keep_lease(5, into=Items()),
    }
    for _ in range(5):
        owned = make[owner]()
        started = time.monotonic()
        owned.close()
        assert time.monotonic() - started < 4  # a lost ending would take the 5 s that closing may take
