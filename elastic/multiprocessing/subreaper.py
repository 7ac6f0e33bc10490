"""Collects the processes that workers leave behind.

A process whose parent has ended is given to the nearest ancestor that asked for such processes. An
agent asks, so that strays end up with it and not with a container's first process that collects none.
"""

import ctypes
import os
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from elastic.utils.processes import list_processes

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


def become_subreaper() -> None:
    """Make this process the parent of its descendants' orphans, for as long as it lives.

    Raises:
        OSError: The system refuses.
    """
    _adoptions.begin()


class _Adoptions:
    """Counts who needs this process to be a subreaper, which is a property of the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_one = False

    def begin(self) -> None:
        with self._lock:
            if self._count == 0:
                before = ctypes.c_int()
                _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
                self._was_one = bool(before.value)
                _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and not self._was_one:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)


_adoptions = _Adoptions()


class Adoption:
    """For a while, as :func:`become_subreaper`: from now until :meth:`end`.

    Raises:
        OSError: The system refuses.
    """

    def __init__(self) -> None:
        _adoptions.begin()
        self._is_over = False

    def end(self) -> None:
        """End it. Ending it twice does no harm."""
        if not self._is_over:
            self._is_over = True
            _adoptions.end()


def _prctl(option: int, argument: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"this process can't become a subreaper: {os.strerror(code)}")


def collect_orphans(*, sessions: Collection[int], killed: Collection[int]) -> None:
    """Collect ended children that this process never started itself.

    Those are: ended members of the workers' ``sessions`` other than the workers, processes that were
    ``killed`` as strays, and children in a session that is neither ours nor their own. A child that this
    process started is in our session, or made one of its own: it is left to whoever started it. So
    a stray that made a session of its own and ended before anybody saw it stays until this process ends.
    """
    own_session = os.getsid(0)
    for process in list_processes().values():
        if process.parent != os.getpid() or not process.is_dead or process.pid in sessions:
            continue
        is_foreign = process.session not in {own_session, process.pid}
        if process.session in sessions or process.pid in killed or is_foreign:
            with suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
