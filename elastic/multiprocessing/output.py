"""Connects the standard streams of workers: to a file, to the pump, or to what this process has.

=============  =====================  ==============================================================
a stream is    the worker writes to   and then
=============  =====================  ==============================================================
redirected     the file itself        nothing is between the worker and the file; but if the logs are
                                      rotated it is a pipe, and the pump writes the file
teed           a pipe                 the pump writes the file, and whole prefixed lines to the console
neither        what this process has  nothing; but stderr that isn't a terminal goes through the pump,
                                      unchanged, so that a report can show its last lines
=============  =====================  ==============================================================
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from elastic.multiprocessing.log_file import open_log
from elastic.multiprocessing.logs import LogsDest
from elastic.multiprocessing.pump import OutputPump
from elastic.multiprocessing.streams import PIPE_BYTES, StreamPlan
from elastic.multiprocessing.tail import read_last_lines
from elastic.multiprocessing.workers import Target

STDOUT, STDERR = 1, 2


class Output:
    """The output of a worker group. Call :meth:`targets` for each worker, then :meth:`start`."""

    def __init__(
        self,
        logs: LogsDest,
        *,
        prefixes: Mapping[int, str],
        stdout_filters: tuple[str, ...],
        stderr_filters: tuple[str, ...],
    ) -> None:
        self._logs = logs
        self._prefixes = prefixes
        self._filters = {STDOUT: stdout_filters, STDERR: stderr_filters}
        self._plans: list[StreamPlan] = []
        self._pump: OutputPump | None = None

    @contextmanager
    def targets(self, local_rank: int) -> "Iterator[tuple[Target, Target]]":
        """Open what a worker's stdout and stderr are connected to, and close it here afterwards."""
        opened: list[int] = []
        try:
            yield self._open(local_rank, STDOUT, opened), self._open(local_rank, STDERR, opened)
        finally:
            for fd in opened:
                os.close(fd)

    def start(self) -> None:
        """Start the pump, if any stream needs it."""
        if self._plans:
            plans, self._plans = self._plans, []
            self._pump = OutputPump(plans)

    def fileno(self) -> int | None:
        """A descriptor that is readable on progress, until :meth:`acknowledge`; None without a pump."""
        return None if self._pump is None else self._pump.fileno()

    def acknowledge(self) -> None:
        """Take note of progress."""
        if self._pump is not None:
            self._pump.acknowledge()

    def drain(self, local_rank: int) -> None:
        """Ask for all that a worker, which has ended, wrote."""
        if self._pump is not None:
            self._pump.drain(local_rank)

    def is_drained(self, local_rank: int) -> bool:
        """Whether that has been done."""
        return self._pump is None or self._pump.is_drained(local_rank)

    def finish(self, seconds: float) -> None:
        """Ask for the end of it all; a blocked console gets so many seconds."""
        if self._pump is not None:
            self._pump.finish(seconds)

    @property
    def is_done(self) -> bool:
        """Whether :meth:`finish` has come to its end."""
        return self._pump is None or self._pump.is_done

    def tail(self, local_rank: int) -> tuple[str, ...]:
        """The last lines of a worker's stderr, as far as they can be known."""
        path = self._logs.stderrs.get(local_rank, "")
        # A log that has just been replaced by a fresh one holds nothing yet; the pump remembers.
        if path and path != os.devnull and self._logs.rotation is None:
            return read_last_lines(path)
        return () if self._pump is None else self._pump.tail(local_rank)

    def close(self) -> None:
        """End the thread and close what was opened. After :attr:`is_done` it doesn't wait."""
        for plan in self._plans:  # of a group whose start failed
            os.close(plan.read_end)
        self._plans.clear()
        if self._pump is not None:
            self._pump.join(0.5)

    def _open(self, local_rank: int, stream: int, opened: list[int]) -> Target:
        is_stdout = stream == STDOUT
        path = (self._logs.stdouts if is_stdout else self._logs.stderrs).get(local_rank, "")
        is_teed = local_rank in (self._logs.tee_stdouts if is_stdout else self._logs.tee_stderrs)
        if path == os.devnull and not is_teed:
            return subprocess.DEVNULL
        if path and not is_teed and self._logs.rotation is None:
            opened.append(open_log(path))
            return opened[-1]
        if not path and (is_stdout or os.isatty(STDERR)):
            return None
        read_end, write_end = os.pipe()
        with suppress(OSError):  # a wider pipe is read in fewer, larger pieces; the system may refuse
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        opened.append(write_end)
        self._plans.append(
            StreamPlan(
                local_rank=local_rank,
                read_end=read_end,
                console=stream,
                path=path,
                is_shown=is_teed or not path,
                rotation=None if path == os.devnull else self._logs.rotation,
                prefix=self._prefixes[local_rank],
                filters=self._filters[stream],
                filtered_path=self._logs.filtered_stdout if is_stdout else self._logs.filtered_stderr,
                keeps_tail=not is_stdout,
            )
        )
        return write_end
