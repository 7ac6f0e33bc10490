"""One worker process: a child of this process in a session of its own, its end seen through a pidfd.

The process is collected late, by :meth:`Worker.collect`: until then its session's number can't be given
to anybody else, so a signal to the session reaches no stranger. No Python code runs between fork and exec,
since the threads of this process don't exist in a forked copy.
"""

import errno
import logging
import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from elastic.utils.processes import Process, read_process

logger = logging.getLogger(__name__)

Target: TypeAlias = int | None
"""What a standard stream is connected to: a descriptor, ``subprocess.DEVNULL``, or None: inherited."""


_HINTS = {
    errno.ENOENT: "; give a command that is on the PATH of this host, or a path to it",
    errno.EACCES: "; make the file executable, or run it with its interpreter",
    errno.ENOEXEC: "; make its first line name its interpreter, or run it with that",
    errno.E2BIG: "; shorten the arguments or the environment",
    errno.EAGAIN: "; raise the limit on the number of processes",
    errno.EMFILE: "; raise the limit on open files",
}


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute for one worker, apart from its environment and its output."""

    argv: Sequence[str]
    stdin: Target = None
    pass_fds: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def require_kernel_support() -> None:
    """Check what workers need of this system and process.

    Raises:
        RuntimeError: It lacks something.
        OSError: It can't be found out, since this process has too many open files or no memory.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM, errno.EACCES}:
            raise  # it has them, but not now: too many open files, for one
        raise RuntimeError(
            f"this system offers no pidfd ({error.strerror}): workers need Linux 5.3 or newer and a "
            "sandbox that allows pidfd_open"
        ) from error
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        raise RuntimeError(
            "SIGCHLD is ignored in this process, so the exit codes of workers would be lost: "
            "call signal.signal(signal.SIGCHLD, signal.SIG_DFL) first"
        )


class Worker:
    """A child process that is one worker. Its owner must call :meth:`collect` once it has ended.

    Args:
        local_rank: Which worker.
        pid: A child of this process that nobody else waits for.
        exitcode: Of a worker that ended before it began; there is nothing to collect then.
        message: Why it did.
    """

    def __init__(self, local_rank: int, pid: int, *, exitcode: int | None = None, message: str = "") -> None:
        self.local_rank = local_rank
        self.pid = pid
        self.message = message
        self.exitcode = exitcode
        """None while it runs; ``-n`` if signal ``n`` ended it."""
        self.pidfd = os.pidfd_open(pid) if exitcode is None else -1

    def poll(self) -> int | None:
        """Look whether it has ended and return its exit code, without collecting it."""
        if self.exitcode is None:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                code = status.si_status
                self.exitcode = code if status.si_code == os.CLD_EXITED else -code
        return self.exitcode

    def observe(self) -> Process | None:
        """Return what ``/proc`` says about it."""
        return read_process(self.pid)

    def collect(self) -> None:
        """Give the process id back to the system, if it has ended, and close the pidfd."""
        if self.pidfd < 0:
            return
        os.close(self.pidfd)
        self.pidfd = -1
        self._reap()

    def _reap(self) -> None:
        os.waitpid(self.pid, os.WNOHANG)


class StartedWorker(Worker):
    """A worker that this process starts by exec."""

    def __init__(
        self,
        local_rank: int,
        command: Command,
        *,
        environment: Mapping[str, str],
        stdout: Target,
        stderr: Target,
        cpus: Collection[int] = (),
    ) -> None:
        """Start the process, bound to these CPUs if any. The descriptors stay the caller's.

        Raises:
            OSError: It can't be started. The message names the worker, the command and the reason.
        """
        try:
            with bound_to(cpus):
                self._process = subprocess.Popen(
                    list(command.argv),
                    stdin=command.stdin,
                    stdout=stdout,
                    stderr=stderr,
                    env={**environment, **command.environment},
                    pass_fds=command.pass_fds,
                    start_new_session=True,
                )
        except OSError as error:
            hint = _HINTS.get(error.errno or 0, "")
            raise OSError(
                error.errno,
                f"worker {local_rank} can't be started: {command.argv[0]!r}: {error.strerror}{hint}",
            ) from error
        try:
            super().__init__(local_rank, self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            raise

    def _reap(self) -> None:
        self._process.poll()


@contextmanager
def bound_to(cpus: Collection[int]) -> Iterator[None]:
    """Bind the calling thread, so that what it starts meanwhile is bound from birth. No CPUs: do nothing.

    A CPU that has gone since it was planned for must not cost a worker: it then starts unbound.
    """
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        logger.warning("a worker can't be bound to the CPUs %s: %s", sorted(cpus), error.strerror)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
