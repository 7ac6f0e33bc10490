"""Being woken when a file changes: inotify, where the system has it.

It tells of changes by this host only. On a file system that hosts share, the others' are found by looking
from time to time, so no wait here is long.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time
from pathlib import Path
from types import TracebackType

_LOOK = 0.5  # seconds between looks for changes by other hosts
_LOOK_UNTOLD = 0.1  # the same, where nothing tells of changes by this one
_CHANGES = 0x2 | 0x4 | 0x400 | 0x800  # written to; another file in its place; deleted; moved


class FileWatch:
    """A watch on whatever file is at a path. A context manager."""

    def __init__(self, path: Path) -> None:
        self._path = os.fsencode(path)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = -1

    def __enter__(self) -> FileWatch:
        with contextlib.suppress(AttributeError):  # this system has no inotify
            self._events = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._events >= 0:
            os.close(self._events)

    def arm(self) -> None:
        """From now on changes count. Look at the file after this, and then `wait`."""
        if self._events >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self._events, 4096)
            # Where it fails, as for a file that was just deleted, the next look comes by time.
            self._libc.inotify_add_watch(self._events, self._path, _CHANGES)

    def wait(self, limit: float) -> None:
        """Return at a change, or when it is time to look again, or after `limit` seconds."""
        if self._events < 0:
            time.sleep(min(limit, _LOOK_UNTOLD))
            return
        poll = select.poll()
        poll.register(self._events, select.POLLIN)
        poll.poll(1000 * min(limit, _LOOK))
