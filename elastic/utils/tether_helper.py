"""The inside of a tether's helper: wait for the owner's end, then end all that it leaves behind.

Runs in an interpreter without site-packages, which :mod:`elastic.utils.tether` starts; so it may import the
standard library, and parts of ours that need no more. It never signals anybody while its owner lives.
"""

import contextlib
import os
import select
import signal
import sys

from elastic.utils.ending import end
from elastic.utils.tether import find_members

GRACE_SECONDS = 0.5
"""From the owner's death to the kill. The promise is that nothing is left two seconds after it."""

SWEEP_SECONDS = 15.0
"""How long the helper goes on killing before it gives up on what can't be killed (kernel waits)."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def main() -> None:
    """Be the helper. The arguments end with the owner's process id and the tether's id; stdin is the pipe."""
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    owner, tether_id = int(sys.argv[-2]), sys.argv[-1]
    holds = _serve(owner, sys.stdin.fileno())
    if holds is not None:
        end(
            lambda: find_members(holds, tether_id, excluding=[owner]),
            grace=GRACE_SECONDS,
            give_up_after=SWEEP_SECONDS,
        )


def _serve(owner: int, read_end: int) -> dict[int, int] | None:
    """Follow the owner's words. Return what it held when it died, or None if it said goodbye."""
    holds: dict[int, int] = {}
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    os.set_blocking(read_end, False)
    pidfd = None
    # The pidfd tells of the end even while a forked copy of the owner keeps the pipe open.
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(owner)
        poll.register(pidfd, select.POLLIN)
    is_alive = os.getppid() == owner
    rest = b""
    while True:
        if is_alive:
            is_alive = all(fd != pidfd for fd, _ in poll.poll())
        try:
            data = os.read(read_end, 65536)
        except BlockingIOError:
            if not is_alive:
                return holds
            continue
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"close":
                return None
            if word == b"hold":
                holds[int(numbers[0])] = int(numbers[1])
            elif word == b"release":
                holds.pop(int(numbers[0]), None)
        if not data:
            return holds
