"""A check of the node by a program of the operator's, before the node joins a job.

The program says by its exit code alone how the node is; what it prints is only shown. 0: good. 1: bad, and
the node does not join. Everything else is trouble of the checker and says nothing about the node, which joins
with a warning: another exit code, a signal, a program that cannot be started or does not end in time, and
an uncaught exception of a checker in Python, whose exit code is 1 as well.

`judge` decides; `check_node` runs the program, in bounded time, and leaves no process of it behind.
"""

from __future__ import annotations

import enum
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from elastic.multiprocessing.signals import signal_name
from elastic.utils.ending import end
from elastic.utils.tether import Tether, find_members

DEFAULT_TIMEOUT = 60.0
"""Seconds that a check may take."""

BAD_CODE = 1
"""The exit code by which a checker says that the node is bad."""

_MOST_OUTPUT = 4096  # bytes of the output's end that are kept
_KILL_SECONDS = 2.0  # for what is left of the checker to be gone
_TRACEBACK = "Traceback (most recent call last):"


class NodeHealth(enum.Enum):
    """How the node is."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """What a check found. `reason` is one sentence, `output` the end of what the checker printed.

    `seconds` is how long it took, and `machine` what the operator calls the machine.
    """

    health: NodeHealth
    reason: str
    output: str = ""
    seconds: float = 0.0
    machine: str = ""

    @property
    def may_join(self) -> bool:
        """A node is kept out only by a checker that works and says so."""
        return self.health is not NodeHealth.BAD

    def labels(self) -> dict[str, str]:
        """What to publish with the node, for a scheduler to read."""
        return {"node-check": self.health.value, "node-check-reason": self.reason, "machine": self.machine}


def judge(code: int | None, output: str = "", *, timeout: float = DEFAULT_TIMEOUT) -> tuple[NodeHealth, str]:
    """How the node is, and why, by the checker's exit code: -N is the signal N, None that it did not end."""
    if code is None:
        return NodeHealth.UNKNOWN, f"the node check did not end within {timeout:g} s"
    if code == 0:
        return NodeHealth.GOOD, "the node check found nothing"
    if code < 0:
        return NodeHealth.UNKNOWN, f"the node check was ended by {signal_name(-code)}"
    if code != BAD_CODE:
        return NodeHealth.UNKNOWN, f"the node check ended with exit code {code}: neither good nor bad"
    lines = [line for line in output.splitlines() if line.strip()]
    if any(line.endswith(_TRACEBACK) for line in lines):
        return NodeHealth.UNKNOWN, f"the node check ended with an uncaught exception: {lines[-1].strip()}"
    said = f": {lines[-1].strip()}" if lines else ""
    return NodeHealth.BAD, f"the node check found this node to be bad{said}"


def check_node(
    command: Sequence[str],
    timeout: float = DEFAULT_TIMEOUT,
    *,
    environment: Mapping[str, str],
    machine: str = "",
) -> NodeVerdict:
    """Run the checker in `environment`, and say what it found. It returns at the latest a little after
    `timeout` seconds; whatever the checker has started is killed then, and if this process dies before.

    ValueError for an empty command, or a timeout that is not positive.
    """
    if not command:
        raise ValueError("the node check is an empty command: name a program")
    if not timeout > 0:
        raise ValueError(f"the timeout of the node check is {timeout}: it must be positive, in seconds")
    began = time.monotonic()
    try:
        code, output = _run(command, began + timeout, environment)
    except OSError as e:
        health, reason, output = NodeHealth.UNKNOWN, f"the node check cannot be started: {e}", ""
    else:
        health, reason = judge(code, output, timeout=timeout)
    return NodeVerdict(
        health=health, reason=reason, output=output, seconds=time.monotonic() - began, machine=machine
    )


def _run(command: Sequence[str], deadline: float, environment: Mapping[str, str]) -> tuple[int | None, str]:
    """The exit code, None where it did not end in time, and the end of the output."""
    read_end, write_end = os.pipe()
    code = None
    try:
        with Tether.start() as tether:
            checker = subprocess.Popen(
                command,
                env={**environment, **tether.environment},
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
            try:
                tether.hold(checker.pid)
                os.close(write_end)
                write_end = -1
                has_ended, output = _follow(checker.pid, read_end, deadline)
            finally:
                # Before it is waited for: until then nobody else can have its process id.
                end(
                    lambda: find_members(tether.holds, tether.id, since=tether.since),
                    signal.SIGKILL,
                    grace=0,
                    give_up_after=_KILL_SECONDS,
                )
                checker.kill()
                # One that hangs in the kernel, as tools that ask a broken device do, is left behind.
                with suppress(subprocess.TimeoutExpired):
                    code = checker.wait(_KILL_SECONDS)
            return (code if has_ended else None), output
    finally:
        for fd in (read_end, write_end):
            if fd >= 0:
                os.close(fd)


def _follow(pid: int, read_end: int, deadline: float) -> tuple[bool, str]:
    """Read what the process prints until it ends. Whether it did in time, and the end of what it printed."""
    pidfd = os.pidfd_open(pid)
    output = b""
    has_ended = False
    os.set_blocking(read_end, False)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            selector.register(read_end, selectors.EVENT_READ)
            while not has_ended and (left := deadline - time.monotonic()) > 0:
                ready = {key.fd for key, _ in selector.select(left)}
                has_ended = pidfd in ready
                if read_end in ready or has_ended:
                    output, is_closed = _read(read_end, output)
                    if is_closed and not has_ended:
                        selector.unregister(read_end)
    finally:
        os.close(pidfd)
    return has_ended, output.decode("utf-8", "replace")


def _read(fd: int, before: bytes) -> tuple[bytes, bool]:
    """What is there, the end of it; and whether no more will come."""
    try:
        data = os.read(fd, 1 << 20)
    except BlockingIOError:
        return before, False
    return (before + data)[-_MOST_OUTPUT:], not data
