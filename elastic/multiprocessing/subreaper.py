"""Collects the processes that workers leave behind.

A process whose parent has ended is given to the nearest ancestor that asked for such processes. An
agent asks, so that strays end up with it and not with a container's first process that collects none.
"""

import ctypes
import os
from collections.abc import Collection
from contextlib import suppress

from elastic.utils.tether import list_processes

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make this process the parent of its descendants' orphans, for as long as it lives.

    Raises:
        OSError: The system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
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
