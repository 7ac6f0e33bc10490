"""The console as a place that may be slow, blocked or gone, and must then stop nobody.

A :class:`Console` queues what is written to one of this process's own descriptors and writes as much
as fits without blocking. It changes no flag of the descriptor, which other processes share. It has
no thread: :mod:`elastic.multiprocessing.pump` calls it.
"""

import itertools
import os
import select
import socket
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

QUEUE_LIMIT = 8 * 1024 * 1024
"""Bytes that wait for a console before :attr:`Console.is_full`."""

STALL_SECONDS = 2.0
"""A full console that takes nothing for so long is blocked rather than slow."""

_CHUNK = 64 * 1024
_MOST_PIECES = 64  # in one call: well below what the system takes
_SAFE_CHUNK = 4096  # PIPE_BUF: poll() promises room for this much


class Console:
    """A non-blocking, queued writer to an open descriptor, which stays the caller's."""

    def __init__(self, fd: int, limit: int = QUEUE_LIMIT) -> None:
        self._limit = limit
        self._queue: deque[memoryview] = deque()
        self._size = 0
        self._socket: socket.socket | None = None
        self._fd = -1
        self._is_own_description = False
        self._skipped: dict[str, int] = {}
        self._waits_since: float | None = None
        self.is_blocked = False
        """Whether it is full and has taken nothing for :data:`STALL_SECONDS`."""
        with suppress(OSError):  # a descriptor that isn't open is a console that is gone
            self._open(fd)

    def _open(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(fd))
            self._fd = self._socket.fileno()
            return
        self._is_own_description = stat.S_ISREG(mode)  # a file never blocks
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            # Opened anew, it has flags of its own: O_NONBLOCK on the shared ones would break the shell.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            with suppress(OSError):
                self._fd = os.open(f"/proc/self/fd/{fd}", flags)
                self._is_own_description = True
                return
        self._fd = os.dup(fd)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should be queued."""
        return self._size >= self._limit

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._queue

    def fileno(self) -> int:
        """The descriptor to wait on for room; -1 if the console is gone."""
        return self._fd

    def put(self, data: bytes | memoryview) -> None:
        """Queue bytes, however much waits already."""
        if self._fd >= 0 and len(data):
            self._queue.append(memoryview(data))
            self._size += len(data)

    def put_lines(self, pieces: Iterable[bytes | memoryview], *, kept_in: str) -> None:
        """Queue pieces of whole lines that a file holds too. While it is blocked they are counted instead."""
        if self.is_blocked or self._skipped:
            count = sum(bytes(piece).count(b"\n") for piece in pieces)
            self._skipped[kept_in] = self._skipped.get(kept_in, 0) + count
        else:
            for piece in pieces:
                self.put(piece)

    def write(self, now: float) -> None:
        """Write what fits; ``now`` is monotonic. Skipped lines are told of once there is room again."""
        while self._queue and self._fd >= 0:
            try:
                written = self._write_some()
            except BlockingIOError:
                written = 0
            except OSError:  # the reader is gone: nobody will ever see it
                self.close()
                return
            if written == 0:
                if self._waits_since is None:
                    self._waits_since = now
                self.is_blocked = self.is_full and now - self._waits_since >= STALL_SECONDS
                return
            self._waits_since = None
            self._forget(written)
        self.is_blocked = False
        for path, count in self._skipped.items():
            notice = f"[{count} lines were not shown because this output was blocked; they are in {path}]\n"
            self.put(os.fsencode(notice))
        self._skipped.clear()

    def close(self) -> None:
        """Drop what waits and close this side's descriptor; the caller's own stays open."""
        if self._socket is not None:
            self._socket.close()
        elif self._fd >= 0:
            os.close(self._fd)
        self._socket, self._fd = None, -1
        self._queue.clear()
        self._skipped.clear()
        self._size = 0

    def _write_some(self) -> int:
        if self._socket is not None:
            return self._socket.send(self._queue[0][:_CHUNK], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if self._is_own_description:
            return os.writev(self._fd, list(itertools.islice(self._queue, _MOST_PIECES)))
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return os.write(self._fd, self._queue[0][:_SAFE_CHUNK]) if poll.poll(0) else 0

    def _forget(self, count: int) -> None:
        self._size -= count
        while count:
            head = self._queue.popleft()
            if count < len(head):
                self._queue.appendleft(head[count:])
                return
            count -= len(head)


def is_same_file(first: int, second: int) -> bool:
    """Whether two open descriptors lead to the same place."""
    try:
        return os.path.sameopenfile(first, second)
    except OSError:
        return False
