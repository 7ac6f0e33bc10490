"""Which processes a timer server may end: those that its own process started, itself or through others."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from typing import Any

from elastic.utils.processes import Process, read_process, send_signal

log = logging.getLogger("elastic.timer")


def find_descendant(pid: int) -> Process | None:
    """The living process `pid`, if this one is an ancestor of it; None otherwise, and for this one itself."""
    found = process = read_process(pid)
    while process is not None and process.parent != os.getpid():
        process = read_process(process.parent) if process.parent > 1 else None
    return None if process is None or found is None or found.is_dead else found


class StartedWorkers:
    """The processes that have timers, each as it was when it asked for the first one.

    So a later process that happens to get the same id is not taken for it.
    """

    def __init__(self) -> None:
        self._processes: dict[int, Process] = {}
        self._refused: set[Any] = set()

    def admit(self, pid: Any) -> bool:
        """Whether the process may have timers. The first refusal of an id is logged."""
        if pid not in self._processes:
            process = find_descendant(pid) if isinstance(pid, int) else None
            if process is not None:
                self._processes[pid] = process
            elif pid not in self._refused:
                self._refused.add(pid)
                log.warning("process %s is refused a timer: it is no worker of this one", pid)
        return pid in self._processes

    def keep(self, pids: Collection[Any]) -> None:
        """Forget all others."""
        self._processes = {pid: process for pid, process in self._processes.items() if pid in pids}

    def end(self, pid: int, number: int) -> None:
        """Send a signal to the process, if it still lives."""
        send_signal(self._processes[pid], number)
