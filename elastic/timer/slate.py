"""The slate of this process: where it writes its deadlines, signs of life and measured times.

Next to the slates lies a named pipe, the doorbell of who reads them. A report is one write of some hundred
bytes into a file that already exists; the bell is rung only where the reader would otherwise look too late.
So a report neither waits nor fails, whether a reader is there, is not there yet, is stopped, or has died,
and nothing that was reported is lost by that.

The process holds a lock on its slate. That is how a reader knows whose it is, by the kernel's word, and that
its process still lives. Standard library only.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import logging
import os
import threading
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from .layout import (
    KEPT,
    MOST_NAME_BYTES,
    MOST_SERIES,
    SLATE_BYTES,
    State,
    pack_series,
    pack_state,
    series_offset,
)
from .series import FIRST_LOOK, STEP, Series

log = logging.getLogger("elastic.timer")

RING = b"\n"
"""What rings the bell. Other lines are requests of torch's client."""

_SPARE = 64  # deadlines that are over and may still stand in the order before it is built anew


def slates_beside(pipe: Path) -> Path:
    """The directory of the slates that belong to a named pipe."""
    return pipe.with_name(pipe.name + ".slates")


class Slate:
    """A slate beside the named pipe `pipe`. For any number of threads; a forked child gets its own.

    `signal` is what this process is to be ended with once a deadline has passed. Nothing is opened before
    the first report. Trouble is logged once, as a warning, and never raised.
    """

    _numbers = itertools.count()
    _stepped_at: float | None

    def __init__(self, pipe: str | os.PathLike[str], *, signal: int) -> None:
        self._pipe = Path(pipe)
        self._signal = signal
        self._begin()

    def acquire(self, scope: str, deadline: float, allowed: float) -> None:
        """Have a deadline for `scope`, in monotonic seconds; `allowed` is told to whoever reads of it."""
        with self._held():
            key = next(self._keys)
            self._open_scopes.setdefault(scope, []).append(key)
            self._live[key] = (deadline, allowed, scope)
            heapq.heappush(self._order, (deadline, key))
            self._publish()

    def release(self, scope: str) -> None:
        """End the latest deadline for `scope`, if there is one."""
        with self._held():
            keys = self._open_scopes.get(scope)
            if keys:
                del self._live[keys.pop()]
                if not keys:
                    del self._open_scopes[scope]
            self._publish()

    def beat(self) -> None:
        """Give a sign of life. Every other report is one too."""
        with self._held():
            self._publish()

    def step(self) -> None:
        """A step has ended, and the next one begins. The first call only starts the clock."""
        with self._held():
            now = time.monotonic()
            duration = None if self._stepped_at is None else now - self._stepped_at
            self._stepped_at = now
            self._add(STEP, now, duration)
            self._publish()
            if self._counts.get(STEP) == FIRST_LOOK and duration is not None:
                self._ring()

    def record(self, name: str, duration: float) -> None:
        """The section `name` has taken so many seconds."""
        with self._held():
            self._add(name, time.monotonic(), duration)
            self._publish()

    def close(self) -> None:
        """Be forgotten by the reader. The next report begins anew."""
        with self._held():
            if self._fd >= 0:
                os.close(self._fd)
            self._clear()

    # -- within ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._owner = os.getpid()
        # Reentrant: the handler of a signal may report while this thread does.
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._fd = -1
        self._keys = itertools.count()
        self._live: dict[int, tuple[float, float, str]] = {}
        self._order: list[tuple[float, int]] = []
        self._open_scopes: dict[str, list[int]] = {}
        self._durations: dict[str, deque[float]] = {}
        self._counts: dict[str, int] = {}
        self._stepped_at = None
        self._is_announced = False
        self._is_broken = False
        self._has_warned = False
        self._is_full = False
        # When the reader looks next at the latest, so far as this process can know.
        self._awaited: float | None = None

    def _held(self) -> AbstractContextManager[object]:
        if self._owner != os.getpid():
            # A forked child: its parent's slate, deadlines and lock, perhaps held, are not its own.
            if self._fd >= 0:
                os.close(self._fd)
            self._begin()
        return self._lock

    def _state(self, now: float) -> State:
        if len(self._order) > 2 * len(self._live) + _SPARE:
            self._order = [entry for entry in self._order if entry[1] in self._live]
            heapq.heapify(self._order)
        while self._order and self._order[0][1] not in self._live:
            heapq.heappop(self._order)
        if not self._order:
            return State(now, self._awaited, signal=self._signal)
        deadline, allowed, scope = self._live[self._order[0][1]]
        return State(now, self._awaited, deadline, allowed, scope, self._signal)

    def _publish(self) -> None:
        """Write the state, and see to it that it is read in time."""
        now = time.monotonic()
        state = self._state(now)
        rings = not self._is_announced or not self._is_read_by(state.deadline, now)
        if rings:
            self._awaited = state.deadline
            state = replace(state, look_by=self._awaited)
        if not self._write(pack_state(state), 0):
            return
        # The reader may have looked, as it had planned to, just before the write.
        if not rings and not self._is_read_by(state.deadline, time.monotonic()):
            rings, self._awaited = True, state.deadline
        if rings:
            is_heard = self._ring()
            self._is_announced = self._is_announced or is_heard
            if not is_heard:
                self._awaited = None

    def _is_read_by(self, deadline: float | None, now: float) -> bool:
        """Whether the reader will look before the deadline without being told of it."""
        return deadline is None or (self._awaited is not None and now < self._awaited <= deadline)

    def _add(self, name: str, now: float, duration: float | None) -> None:
        name = name.encode("utf-8", "replace")[:MOST_NAME_BYTES].decode("utf-8", "ignore")
        if name not in self._counts:
            # The steps have the first place, whenever they begin.
            if name != STEP and len(self._counts.keys() - {STEP}) >= MOST_SERIES - 1:
                if not self._is_full:
                    self._is_full = True
                    log.warning("section %r is not reported: a process may have %d", name, MOST_SERIES - 1)
                return
            self._counts[name] = 0
            self._durations[name] = deque(maxlen=KEPT)
        if duration is not None:
            self._counts[name] += 1
            self._durations[name].append(duration)
        place = 0 if name == STEP else 1 + [n for n in self._counts if n != STEP].index(name)
        series = Series(self._counts[name], now, tuple(self._durations[name]))
        self._write(pack_series(name, series), series_offset(place))

    def _write(self, data: bytes, offset: int) -> bool:
        if self._is_broken:
            return False
        try:
            if self._fd < 0:
                fd = self._create()
                if self._fd >= 0:  # the handler of a signal came first; one that nobody holds is forgotten
                    os.close(fd)
                else:
                    self._fd = fd
            os.pwrite(self._fd, data, offset)
        except OSError as e:
            # Without a slate there is nothing to be done; a disk that is full may have room again.
            self._is_broken = self._fd < 0
            self._warn(f"cannot write to {slates_beside(self._pipe)}", e)
            return False
        return True

    def _create(self) -> int:
        """A new slate, complete and locked before a reader can see it."""
        directory = slates_beside(self._pipe)
        directory.mkdir(mode=0o700, exist_ok=True)
        name = f"{os.getpid()}-{time.monotonic_ns()}-{next(self._numbers)}"
        hidden = directory / f".{name}"
        fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(fd, SLATE_BYTES)
            os.pwrite(fd, pack_state(self._state(time.monotonic())), 0)
            hidden.rename(directory / name)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _ring(self) -> bool:
        """Whether the reader will look soon."""
        try:
            fd = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            self._warn(f"nobody reads {self._pipe}: deadlines are not enforced", e)
            return False
        try:
            os.write(fd, RING)
        except BlockingIOError:
            return False  # thousands of rings were not heard yet; the next report rings again
        except OSError as e:
            self._warn(f"nobody reads {self._pipe}: deadlines are not enforced", e)
            return False
        finally:
            os.close(fd)
        return True

    def _warn(self, what: str, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("%s (%s); the work goes on, and this is said once", what, error.strerror or error)
