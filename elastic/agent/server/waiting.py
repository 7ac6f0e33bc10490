"""How the agent's one loop waits: for descriptors, other threads, signals and a time, all at once."""

from __future__ import annotations

import collections
import logging
import os
import selectors
import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

from elastic.multiprocessing.signals import signal_name

log = logging.getLogger("elastic.agent")


class Doorbell:
    """Wakes the loop from another thread or a signal handler. `ring` may be called from anywhere."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def ring(self) -> None:
        if self._fd >= 0:
            os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def wait(fds: Iterable[int], until: float | None) -> None:
    """Block until one of the descriptors is readable, or until that monotonic time."""
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        selector.select(None if until is None else max(0.0, until - time.monotonic()))


class Signals:
    """Notes signals instead of dying of them, for as long as it is entered.

    `ending` are those that make the agent leave, `passing` those that it passes on to its workers; one
    that is in both ends. A signal that the process inherited as ignored stays ignored. In a thread that is
    not the main one nothing can be installed: it says so once, and the agent is ended by its `stop`.
    """

    def __init__(self, ending: Iterable[int], bell: Doorbell, *, passing: Iterable[int] = ()) -> None:
        self._ending = tuple(ending)
        self._passing = tuple(n for n in passing if n not in self._ending)
        self._bell = bell
        self._before: dict[int, Any] = {}
        self.received: list[int] = []
        """The ending ones, in order."""
        self.news: collections.deque[int] = collections.deque()
        """The passing ones that nobody has taken yet."""

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            log.warning("not in the main thread: the agent handles no signals; end it by its stop()")
            return self
        for number in (*self._ending, *self._passing):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        (self.news if number in self._passing else self.received).append(number)
        self._bell.ring()


class Orders:
    """Every order to leave that an agent gets: signals, and calls of `stop` from any thread."""

    def __init__(self, bell: Doorbell) -> None:
        self.signals = Signals((), bell)
        self._bell = bell
        self._lock = threading.Lock()
        self._stops = 0
        self._heeded = 0

    def stop(self) -> None:
        with self._lock:
            self._stops += 1
            self._bell.ring()

    def ring(self) -> None:
        """Wake the loop, if it is not over."""
        with self._lock:
            self._bell.ring()

    @property
    def count(self) -> int:
        return len(self.signals.received) + self._stops

    def heed(self) -> bool:
        """Whether there was a new one since this was last asked."""
        heeded, self._heeded = self._heeded, self.count
        return self._heeded > heeded

    @property
    def name(self) -> str:
        """The first signal, or else the call."""
        return signal_name(self.signals.received[0]) if self.signals.received else "stop()"

    def close(self) -> None:
        """Close the bell, which no later `stop` must ring."""
        with self._lock:
            self._bell.close()
