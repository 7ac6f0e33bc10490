"""Stores of torch and tensorplay when they fail. How they work is in the contract of all stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest

from elastic.store import PrefixStore, StoreError, as_store

SERVE = """
import sys
import {0}.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


def fails_in_our_words(framework: str, tcp_store: Any, *, timeout: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE.format(framework)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            store = as_store(tcp_store("127.0.0.1", port, timeout=timeout, wait_for_workers=False))
            store.set("a", "1")
            assert store.get("a") == b"1"
        finally:
            process.kill()
    # Torch's set asks for no answer, so the first one after the loss is lost in silence.
    for call in (lambda: store.get("a"), lambda: store.add("n", 1), store.num_keys):
        with pytest.raises(StoreError) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is not None


@pytest.mark.torch
def test_a_torch_store_without_its_server_fails_in_our_words() -> None:
    import torch.distributed as dist

    fails_in_our_words("torch", dist.TCPStore, timeout=timedelta(seconds=5))


@pytest.mark.tensorplay
def test_a_tensorplay_store_without_its_server_fails_in_our_words() -> None:
    import tensorplay.distributed as dist

    fails_in_our_words("tensorplay", dist.TCPStore, timeout=2.0)


@pytest.mark.tensorplay
def test_signals_interrupt_no_request_of_a_tensorplay_store() -> None:
    import tensorplay.distributed as dist

    served = dist.TCPStore("127.0.0.1", 0, is_master=True)
    store = as_store(served)
    seen = 0

    def note(*_: object) -> None:
        nonlocal seen
        seen += 1

    over = threading.Event()

    def send() -> None:
        while not over.wait(0.001):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, note)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        n = 0
        while seen < 500:
            n += 1
            assert store.add("n", 1) == n
            assert store.compare_set("k", "" if n == 1 else str(n - 1), str(n)) == b"%d" % n
            assert store.get("k") == b"%d" % n
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
        served.stop()


@pytest.mark.torch
def test_prefixes_of_torch_and_of_ours_go_together() -> None:
    import torch.distributed as dist

    base = dist.HashStore()
    PrefixStore("x", base).set("a", "1")
    assert dist.PrefixStore("x", base).get("a") == b"1"
    assert as_store(dist.PrefixStore("x", base)).peek("a") == b"1"


@pytest.mark.torch
def test_the_timeout_of_a_torch_store_is_taken_over() -> None:
    import torch.distributed as dist

    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=7))
    assert as_store(store).timeout == timedelta(seconds=7)
