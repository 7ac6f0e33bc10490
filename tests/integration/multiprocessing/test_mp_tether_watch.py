"""Somebody kills the helper that ends the workers if the agent dies: there is another, up to a limit."""

from __future__ import annotations

import logging
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from elastic.multiprocessing import tether_watch
from elastic.multiprocessing.tether_watch import TetherWatch
from elastic.utils.tether import Tether


@contextmanager
def watched() -> Iterator[tuple[Tether, TetherWatch, select.epoll]]:
    with Tether.start() as tether, select.epoll() as epoll:
        watch = TetherWatch(tether, epoll)
        yield tether, watch, epoll
        watch.close()


def kill(tether: Tether, watch: TetherWatch, epoll: select.epoll, *, is_watched: bool = True) -> bool:
    """Kill the helper; whether that is noticed and answered."""
    killed = tether.pid
    os.kill(killed, signal.SIGKILL)
    events = epoll.poll(10 if is_watched else 0)
    return any(watch.note(fd) for fd, _ in events) and tether.pid != killed


def test_it_says_when_a_helper_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    with watched() as (tether, watch, epoll), caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert kill(tether, watch, epoll)
        assert {record.levelno for record in caplog.records} == {logging.WARNING}
        assert kill(tether, watch, epoll), "the last one is started all the same"
        assert "killed 6 times in a row: there is another, the last" in caplog.records[-1].message
        assert caplog.records[-1].levelno == logging.ERROR
        assert not kill(tether, watch, epoll, is_watched=False)


def test_helpers_that_live_for_long_are_replaced_without_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tether_watch, "_LONG_SECONDS", 0.0)
    with watched() as (tether, watch, epoll), caplog.at_level(logging.WARNING):
        for _ in range(8):
            assert kill(tether, watch, epoll)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
