"""Has workers write the stacks of their threads before they are stopped: where does it hang?

A worker that has a handler for the signal of :mod:`elastic.multiprocessing.stack_signal` writes them itself,
into a file beside its logs. For other Python processes ``py-spy`` does it, if it is installed. All of it is
bounded: a worker that can't answer costs :data:`ANSWER_SECONDS`, a tool that hangs :data:`TOOL_SECONDS`.
"""

import os
import select
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from elastic.multiprocessing.notify import notify
from elastic.multiprocessing.stack_signal import STACKS_SIGNAL
from elastic.multiprocessing.workers import Worker

ANSWER_SECONDS = 0.5
"""For a worker to write its stacks. Nothing tells when it has."""

TOOL_SECONDS = 5.0
"""For ``py-spy``."""

_NAME = "stacks.txt"


def stack_files(error_files: Mapping[int, str]) -> dict[int, str]:
    """Return where the stacks of each worker go: beside its error file, or nowhere if it has none."""
    return {rank: str(Path(path).with_name(_NAME)) for rank, path in error_files.items() if path}


def remove_empty(paths: Iterable[str]) -> None:
    """Remove the files of workers that were never asked."""
    for path in paths:
        with suppress(FileNotFoundError):
            if not Path(path).stat().st_size:
                Path(path).unlink()


class StackDump:
    """One request to a group of workers. Its owner waits until :attr:`until`, and then calls :meth:`close`.

    Args:
        workers: Those that run.
        files: Where their stacks go, by local rank.
        epoll: Gets a descriptor for each tool that runs; it is readable when the tool has ended.
        environment: The environment of tools.
        now: Monotonic time.
    """

    def __init__(
        self,
        workers: Iterable[Worker],
        files: Mapping[int, str],
        epoll: select.epoll,
        *,
        environment: Mapping[str, str],
        now: float,
    ) -> None:
        self._epoll = epoll
        self._tools: dict[int, subprocess.Popen[bytes]] = {}
        self._answered_by = now
        self._tools_until = now + TOOL_SECONDS
        program = shutil.which("py-spy", path=environment.get("PATH"))
        for worker in workers:
            path = files.get(worker.local_rank)
            if path is None or worker.pidfd < 0:
                continue
            if notify(worker.pid, worker.pidfd, STACKS_SIGNAL):
                self._answered_by = now + ANSWER_SECONDS
            elif program is not None and _is_python(worker.pid):
                self._start(program, worker.pid, path, environment)

    @property
    def until(self) -> float:
        """When it is over at the latest, in monotonic seconds. It becomes earlier as tools end."""
        return max(self._answered_by, self._tools_until) if self._tools else self._answered_by

    def note(self, fd: int) -> bool:
        """Take an event of the epoll; False if the descriptor isn't one of ours."""
        if fd not in self._tools:
            return False
        self._end(fd)
        return True

    def close(self) -> None:
        """End tools that still run. The epoll stays open."""
        for fd in list(self._tools):
            self._tools[fd].kill()
            self._end(fd)

    def _start(self, program: str, pid: int, path: str, environment: Mapping[str, str]) -> None:
        # Not blocking the worker, so that an end of the tool at any moment leaves it as it was.
        command = [program, "dump", "--nonblocking", "--pid", str(pid)]
        with suppress(OSError), Path(path).open("ab") as file:  # a report less, not a failure more
            tool = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=dict(environment),
                start_new_session=True,
            )
            fd = os.pidfd_open(tool.pid)
            self._tools[fd] = tool
            self._epoll.register(fd, select.EPOLLIN)

    def _end(self, fd: int) -> None:
        self._epoll.unregister(fd)
        os.close(fd)
        with suppress(subprocess.TimeoutExpired):  # killed, but in a system call that doesn't end
            self._tools.pop(fd).wait(timeout=1.0)


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("python")
    except OSError:
        return False
