"""How the loop waits: woken by a bell, a descriptor, a signal or the time, and by nothing else."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from elastic.agent.server.waiting import Doorbell, Orders, Signals, wait


@pytest.fixture
def bell() -> Iterator[Doorbell]:
    bell = Doorbell()
    yield bell
    bell.close()


def rings(bell: Doorbell) -> bool:
    return bool(select.select([bell.fileno()], [], [], 0)[0])


def test_a_bell_rings_until_it_is_cleared(bell: Doorbell) -> None:
    assert not rings(bell)
    bell.ring()
    bell.ring()
    assert rings(bell)
    bell.clear()
    assert not rings(bell)
    bell.clear()
    assert not rings(bell)


def test_a_bell_that_is_closed_is_silent() -> None:
    bell = Doorbell()
    bell.close()
    bell.close()
    bell.ring()


def test_a_bell_is_not_inherited(bell: Doorbell) -> None:
    assert not os.get_inheritable(bell.fileno())


def test_a_bell_wakes_from_another_thread(bell: Doorbell) -> None:
    ringer = threading.Timer(0.1, bell.ring)
    ringer.start()
    start = time.monotonic()
    wait([bell.fileno()], start + 60)
    ringer.join()
    assert rings(bell)
    assert time.monotonic() - start < 30


def test_a_time_that_has_come_is_not_waited_for() -> None:
    wait([], time.monotonic() - 1)


def test_a_time_is_waited_for(bell: Doorbell) -> None:
    until = time.monotonic() + 0.1
    wait([bell.fileno()], until)
    assert time.monotonic() >= until


def test_any_of_several_descriptors_wakes(bell: Doorbell) -> None:
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, b"x")
        wait([bell.fileno(), read_end], time.monotonic() + 60)
    finally:
        os.close(read_end)
        os.close(write_end)


def test_signals_are_noted_in_order_and_ring(bell: Doorbell) -> None:
    with Signals([signal.SIGUSR1, signal.SIGUSR2], bell) as signals:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        assert signals.received == [signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1]
        assert rings(bell)


def test_a_signal_wakes_the_wait(bell: Doorbell) -> None:
    with Signals([signal.SIGUSR1], bell) as signals:
        sender = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        sender.start()
        start = time.monotonic()
        wait([bell.fileno()], start + 60)
        sender.join()
        assert signals.received == [signal.SIGUSR1]
        assert time.monotonic() - start < 30


def test_the_handlers_of_before_are_put_back(bell: Doorbell) -> None:
    def mine(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGUSR1, mine)
    try:
        with Signals([signal.SIGUSR1], bell):
            assert signal.getsignal(signal.SIGUSR1) is not mine
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_ignored_signal_stays_ignored(bell: Doorbell) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals([signal.SIGHUP], bell) as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.received == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_it_says_so(bell: Doorbell, caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGUSR1)

    def enter() -> None:
        with Signals([signal.SIGUSR1], bell):
            pass

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR1) is before
    assert "main thread" in caplog.text


def test_news_are_kept_apart_from_what_ends_the_agent(bell: Doorbell) -> None:
    with Signals([signal.SIGUSR1], bell, passing=[signal.SIGUSR1, signal.SIGUSR2]) as signals:
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert (signals.received, list(signals.news)) == ([signal.SIGUSR1], [signal.SIGUSR2])
        assert rings(bell)


def test_orders_are_heeded_once() -> None:
    orders = Orders(Doorbell())
    assert not orders.heed()
    orders.stop()
    assert (orders.heed(), orders.heed(), orders.count, orders.name) == (True, False, 1, "stop()")
    orders.signals.received.append(signal.SIGHUP)
    assert (orders.heed(), orders.heed(), orders.count, orders.name) == (True, False, 2, "SIGHUP")
    orders.close()
    orders.stop()
    assert orders.heed()


def test_a_stop_rings_from_any_thread(bell: Doorbell) -> None:
    orders = Orders(bell)
    thread = threading.Thread(target=orders.stop)
    thread.start()
    thread.join()
    assert rings(bell)
