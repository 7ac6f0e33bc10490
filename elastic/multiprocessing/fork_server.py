"""The inside of a fork server: import a function's module once, then become its workers, each a copy.

Runs in the fresh interpreter that :mod:`elastic.multiprocessing.fork_context` started, and holds no thread of
ours. Each child returns from :func:`main` like any program, so that its exit is Python's own. The server
itself ends as soon as its children are on their own: it outlives none of them and waits for none.
"""

import gc
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from elastic.multiprocessing.errors import record
from elastic.multiprocessing.function_worker import call, import_main
from elastic.multiprocessing.stack_signal import register_stack_dump

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seat:
    """What one worker is given. ``stdout`` and ``stderr`` are as for :class:`subprocess.Popen`."""

    local_rank: int
    handover: int
    result: int
    stdout: int | None
    stderr: int | None
    environment: dict[str, str]
    cpus: Sequence[int]

    @property
    def descriptors(self) -> set[int]:
        """What must be open for it."""
        streams = {fd for fd in (self.stdout, self.stderr) if fd is not None and fd >= 0}
        return streams | {self.handover, self.result}


def main(handover: IO[bytes], report: int) -> None:
    """Be a fork server, and in its children a worker. The descriptors are this process's alone."""
    with handover:
        seats = [Seat(**seat) for seat in json.loads(handover.readline())]
        passed = {report}.union(*(seat.descriptors for seat in seats))
        for fd in passed:
            os.set_inheritable(fd, False)
        console = {fd: os.dup(fd) for fd in (1, 2)}
        # What the import prints belongs to somebody: to the first worker.
        if seats:
            _connect(seats[0], console)
        load = _import(handover)
    seat = _fork(seats, report, passed | set(console.values()), console)
    register_stack_dump()
    record(_run)(seat, load)


def _import(handover: IO[bytes]) -> Callable[[], Callable[..., Any]]:
    """Import the function. What goes wrong is an error of each worker, and is raised in each."""
    try:
        import_main(handover)
        function: Callable[..., Any] = pickle.load(handover)  # noqa: S301 - written by our own launcher
        threads = threading.active_count() - 1
        if threads:
            raise RuntimeError(
                f"importing {function.__module__} has started {threads} threads, which a forked worker would "
                "lack: start them in the function, or use the start method 'spawn'"
            )
    except (Exception, SystemExit) as error:
        failure = error

        def fail() -> Callable[..., Any]:
            raise failure

        return fail
    return lambda: function


def _fork(seats: Sequence[Seat], report: int, passed: set[int], console: dict[int, int]) -> Seat:
    """Fork a child for each seat and end. Returns in the children alone."""
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # what has been imported is shared with the children for longer
    leads, is_leading = os.pipe()
    for seat in seats:
        try:
            pid = os.fork()
        except OSError as error:
            text = f"worker {seat.local_rank} can't be forked: {error.strerror}; raise the limit on processes"
            os.write(report, f"failed {text}\n".encode())
            os._exit(1)
        if pid == 0:
            os.setsid()
            _sit_down(seat, passed | {leads, is_leading}, console)
            return seat
        os.write(report, f"{seat.local_rank} {pid}\n".encode())
    # A worker is handed over once it leads a session of its own.
    os.close(is_leading)
    os.read(leads, 1)
    os._exit(0)  # what the module registered to be done at exit is for the workers to do


def _sit_down(seat: Seat, passed: set[int], console: dict[int, int]) -> None:
    """Turn a fresh copy into the worker: with its streams, environment and CPUs, and nothing of others."""
    _connect(seat, console)
    for fd in passed - {seat.handover, seat.result}:
        os.close(fd)
    os.environ.update(seat.environment)
    if seat.cpus:
        try:
            os.sched_setaffinity(0, seat.cpus)
        except OSError as error:
            logger.warning("this worker can't be bound to the CPUs %s: %s", seat.cpus, error.strerror)


def _connect(seat: Seat, console: dict[int, int]) -> None:
    for fd, target in ((1, seat.stdout), (2, seat.stderr)):
        if target == subprocess.DEVNULL:
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, fd)
            os.close(null)
        else:
            os.dup2(console[fd] if target is None else target, fd)


def _run(seat: Seat, load: Callable[[], Callable[..., Any]]) -> None:
    function = load()
    with os.fdopen(seat.handover, "rb") as handover:
        args = pickle.load(handover)  # noqa: S301 - written by our own launcher, in private memory
    call(function, args, seat.result)
