"""Signals that are only news to a worker: sent to whoever has a handler for them, and to nobody else.

Whether a process has one is asked of ``/proc``: the default action of such a signal ends a process, also one
that is just about to install its handler.
"""

import signal
from pathlib import Path


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    mask = next((line for line in status.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(mask.partition(":")[2], 16) >> (number - 1) & 1)


def notify(pid: int, pidfd: int, number: int) -> bool:
    """Send a process a signal if it has a handler for it; whether it was sent."""
    if not catches(pid, number):
        return False
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True
