"""Processes of this machine: what ``/proc`` says of them, and signals to none but the one that is meant.

A process is named by its id *and* its start time, and a signal goes through a pidfd that was checked against
both, so no process that got the id of another one is ever signalled. The helper of a tether loads this module
without site-packages, so it may import the standard library and nothing else. Linux 5.3 or newer.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """One process as ``/proc`` shows it. ``started`` is in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    session: int
    started: int

    @property
    def is_dead(self) -> bool:
        """Whether it has ended and only waits to be collected."""
        return self.state in "ZXx"


def read_process(pid: int) -> Process | None:
    """Return what ``/proc`` says about a process, or None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses: only the last one closes it.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def list_processes() -> dict[int, Process]:
    """Return every process that ``/proc`` shows, by id."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return {process.pid: process for pid in pids if (process := read_process(pid)) is not None}


def open_pidfd(process: Process) -> int | None:
    """Return a pidfd of exactly this process (the caller closes it), or None if it has ended."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    now = read_process(process.pid)
    if now is None or now.started != process.started or now.is_dead:
        os.close(pidfd)
        return None
    return pidfd


def send_signal(process: Process, signum: int) -> bool:
    """Send a signal to exactly this process; False if it has ended or isn't ours to signal."""
    pidfd = open_pidfd(process)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True
