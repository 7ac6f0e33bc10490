"""Where an agent or a timer server reads what processes report: a named pipe, and the slates beside it.

Neither side needs the other to start. The pipe is the doorbell of those who write slates, and takes requests
of torch's own client, one line of JSON each. Whose slate it is, and whether its process still lives, the
kernel says by the lock on it; a line only says it of itself. This module decides nothing about deadlines and
knows nothing of workers: who reads it checks each process id. It never blocks.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import shutil
import stat
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .api import RELEASE, TimerRequest
from .layout import (
    MOST_SERIES,
    SERIES_BYTES,
    SLATE_BYTES,
    STATE_BYTES,
    State,
    series_offset,
    unpack_series,
    unpack_state,
)
from .series import Series
from .slate import slates_beside

log = logging.getLogger("elastic.timer")

_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, process id
_READ_BYTES = 65536
_MOST_READS = 64  # in one call, so that a flood does not hold up the caller
_MOST_LINE = 65536
_TORN_SECONDS = 0.01
_NO_UPTIME = 1e9  # seconds: no machine runs that long, and no clock on the wall shows less


class FileTimerRequest(TimerRequest):
    """A request with the process id of the worker, and the signal that is to end it.

    `allowed` is how many seconds the worker gave itself; 0 where that is not known.
    """

    __slots__ = ("allowed", "signal")

    def __init__(
        self, worker_pid: int, scope_id: str, expiration_time: float, signal: int = 0, allowed: float = 0.0
    ) -> None:
        super().__init__(worker_pid, scope_id, expiration_time)
        self.signal = signal
        self.allowed = allowed

    @property
    def worker_pid(self) -> int:
        return int(self.worker_id)


@dataclass(slots=True)
class _Slate:
    fd: int
    pid: int
    state: State
    is_torn: bool = False

    def deadline(self) -> list[FileTimerRequest]:
        """The request for the deadline that it has, as a list; empty, where it has none."""
        now = self.state
        if now.deadline is None:
            return []
        return [FileTimerRequest(self.pid, now.scope, now.deadline, now.signal, now.allowed)]


class Mailbox:
    """Reads the named pipe `path`, which it makes, and the slates beside it. The owner closes it.

    OSError where the pipe cannot be made, is read by somebody else, or is not this user's.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._directory = slates_beside(self._path)
        self._slates: dict[str, _Slate] = {}
        self._unread = b""
        self._has_warned = False
        self._fd = -1
        try:
            self._open()
            self.wake()  # there may be slates already
        except OSError:
            if self._fd >= 0:
                os.close(self._fd)
            raise

    def fileno(self) -> int:
        """Readable when there is something to receive."""
        return self._fd

    def wake(self) -> None:
        """Make `fileno` readable."""
        try:
            os.write(self._fd, b"\n")
        except BlockingIOError:
            return  # it is readable

    def receive(self) -> list[FileTimerRequest]:
        """What has changed since the last call, in order; one slate has at most one deadline open."""
        requests: list[FileTimerRequest] = []
        rang = False
        for line in self._lines():
            if line.strip():
                request = self._request(line)
                requests += [] if request is None else [request]
            else:
                rang = True
        if rang:
            self._find_slates()
        for name in list(self._slates):
            requests += self._changes(name)
        return requests

    def open_deadlines(self) -> list[FileTimerRequest]:
        """The deadline of each slate, as of the last `receive`, whether it was told of before or not."""
        return [request for slate in self._slates.values() for request in slate.deadline()]

    def next_look(self, now: float) -> float | None:
        """When a process counts on its slate being read again; None where none does."""
        if any(slate.is_torn for slate in self._slates.values()):
            return now + _TORN_SECONDS
        times = (slate.state.look_by for slate in self._slates.values())
        return min((at for at in times if at is not None and at > now), default=None)

    def signs_of_life(self) -> dict[int, float]:
        """When each process with a slate reported last, in monotonic seconds, as of the last `receive`."""
        latest: dict[int, float] = {}
        for slate in self._slates.values():
            latest[slate.pid] = max(slate.state.alive_at, latest.get(slate.pid, -math.inf))
        return latest

    def series(self) -> list[tuple[int, str, Series]]:
        """Every series that is readable now: process id, name, content."""
        found = []
        for slate in self._slates.values():
            data = os.pread(slate.fd, SLATE_BYTES, 0)
            for index in range(MOST_SERIES):
                offset = series_offset(index)
                entry = unpack_series(data[offset : offset + SERIES_BYTES])
                if entry is not None:
                    found.append((slate.pid, *entry))
        return found

    def close(self) -> None:
        """Remove the pipe and all slates. May be called again."""
        for slate in self._slates.values():
            os.close(slate.fd)
        self._slates.clear()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._path.unlink(missing_ok=True)
            shutil.rmtree(self._directory, ignore_errors=True)
            os.close(fd)

    # -- within ------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            os.mkfifo(self._path, mode=0o600)
        except FileExistsError:
            if not stat.S_ISFIFO(self._path.lstat().st_mode):
                why = "it is no named pipe; name another file"
                raise FileExistsError(errno.EEXIST, why, str(self._path)) from None
        except OSError as e:  # mkfifo names no file
            raise OSError(
                e.errno, f"no named pipe can be made: {e.strerror}; name another file", str(self._path)
            ) from e
        # Also for writing, so that it never comes to an end while no worker has it open.
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise OSError(errno.EBUSY, "another server reads it; name another file", str(self._path)) from e
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for path in (self._path, self._directory):
            if path.lstat().st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it is another user's; name another file", str(path))

    def _lines(self) -> list[bytes]:
        lines: list[bytes] = []
        for _ in range(_MOST_READS):
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                break
            *whole, rest = (self._unread + data).split(b"\n")
            self._unread = rest[-_MOST_LINE:]
            lines += whole
        return lines

    def _request(self, line: bytes) -> FileTimerRequest | None:
        """The request in a line of torch's client; None, and a warning for the first, where it is none."""
        try:
            content: Any = json.loads(line)
            pid, scope, at = int(content["pid"]), str(content["scope_id"]), float(content["expiration_time"])
            number = int(content.get("signal", 0))
            if math.isnan(at):
                raise ValueError("not a number")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            if not self._has_warned:
                self._has_warned = True
                log.warning("%s: %r is no timer request; it is ignored", self._path, line[:200])
            return None
        if at < 0:
            return FileTimerRequest(pid, scope, RELEASE)
        now = time.monotonic()
        if at > _NO_UPTIME:  # torch's `expires` goes by the wall clock
            at = max(0.0, now + at - time.time())
        return FileTimerRequest(pid, scope, at, number, max(0.0, at - now))

    def _find_slates(self) -> None:
        with os.scandir(self._directory) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
        for name in names:
            if name in self._slates:
                continue
            try:
                fd = os.open(self._directory / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError as e:
                log.warning("cannot read what a worker reports (%s)", e)
                continue
            pid = _holder(fd)
            if pid is None:  # its process has ended
                os.close(fd)
                (self._directory / name).unlink(missing_ok=True)
            else:
                self._slates[name] = _Slate(fd, pid, State(0.0))

    def _changes(self, name: str) -> list[FileTimerRequest]:
        """Read a slate again; the end of its earlier deadline, and the one it has now, where it differs."""
        slate = self._slates[name]
        before = slate.state
        ended = [] if before.deadline is None else [FileTimerRequest(slate.pid, before.scope, RELEASE)]
        # Who dies lets go of the lock: read first, so that the last word of a process is not lost.
        now = unpack_state(os.pread(slate.fd, STATE_BYTES, 0))
        if _holder(slate.fd) != slate.pid:
            self._drop(name)
            return ended
        slate.is_torn = now is None  # it is just being written: what it says will be read very soon
        if now is None:
            return []
        slate.state = now
        if (now.deadline, now.scope) == (before.deadline, before.scope):
            return []
        return [*ended, *slate.deadline()]

    def _drop(self, name: str) -> None:
        os.close(self._slates.pop(name).fd)
        (self._directory / name).unlink(missing_ok=True)


def _holder(fd: int) -> int | None:
    """The process that holds a lock on the file; None where none does, or only one that is invisible here."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None
