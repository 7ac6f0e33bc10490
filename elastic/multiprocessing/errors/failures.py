"""What is known about a worker that ended badly, and the exception that carries it.

Values. The one thing read from outside is the error file that a failure names.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elastic.multiprocessing.errors.error_file import read_error_file
from elastic.multiprocessing.signals import signal_name

NO_ERROR_FILE = "<N/A>"
"""The error file of a worker that has none."""

_RANK = re.compile(r"^\[rank\d+\]: ?")  # with which torch begins each line of a traceback
_GROUP = re.compile(r"^  [|+] ")  # with which Python begins each line about an exception group
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|ExceptionGroup|Interrupt)(?:: .*)?$")

FAILURE_CODE = 1
"""The exit code for a failure that has no code of its own."""


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """A worker that ended with an exit code other than 0.

    What isn't given is read from the error file, which may be missing or broken; what is given wins.

    Args:
        local_rank: Which worker, on its node.
        pid: Its process id, on its node.
        exitcode: Its exit code; ``-n`` if signal ``n`` ended it.
        error_file: Where it may have written its error. On this node a file that was never written is none.
        error_file_data: The error file's content.
        message: What went wrong, in words.
        timestamp: When, in whole seconds since the epoch, by the worker's clock. For people to read;
            nothing is decided by it unless ``observed`` is missing.
        traceback: The traceback the worker recorded, or empty.
        stderr_tail: The last lines it wrote to stderr.
        victim: Whether its launcher stopped it, so that it isn't to blame.
        observed: Orders failures by cause: the earlier is the smaller. On one node it is the
            monotonic time at which the exit was seen; minus infinity is that of the failure which the whole
            job found to be the first. 0 means not known.
        host: The node it ran on; empty means this one. The error file of another node isn't looked for.
        hint: What may have been the reason, where the worker could not say.
        log: The file that holds all it wrote to stderr; empty if there is none.
    """

    local_rank: int
    pid: int
    exitcode: int
    error_file: str = NO_ERROR_FILE
    error_file_data: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    timestamp: int = 0
    traceback: str = ""
    stderr_tail: tuple[str, ...] = ()
    victim: bool = False
    observed: float = 0.0
    host: str = ""
    hint: str = ""
    log: str = ""

    def __post_init__(self) -> None:
        record = None
        if self.error_file not in {"", NO_ERROR_FILE} and not self.host:
            record = read_error_file(self.error_file)
            if record is None and not Path(self.error_file).exists():
                object.__setattr__(self, "error_file", NO_ERROR_FILE)
        if record is not None:
            self._default("error_file_data", record.data)
            self._default("message", record.message)
            self._default("timestamp", record.timestamp)
            self._default("traceback", record.traceback)
        else:
            self._default("message", self._describe_exit())
            self._default("timestamp", int(time.time()))
            if not self.error_file:
                object.__setattr__(self, "error_file", NO_ERROR_FILE)

    def _default(self, name: str, value: object) -> None:
        if not getattr(self, name):
            object.__setattr__(self, name, value)

    def _describe_exit(self) -> str:
        if self.exitcode < 0:
            return f"Signal {-self.exitcode} ({signal_name(-self.exitcode)}) received by PID {self.pid}"
        return f"Exit code {self.exitcode}, and no traceback was recorded"

    @property
    def exit_code(self) -> int:
        """Another name of :attr:`exitcode`."""
        return self.exitcode

    def signal_name(self) -> str:
        """The name of the signal that ended the worker, or ``<N/A>`` if none did."""
        return signal_name(-self.exitcode) if self.exitcode < 0 else "<N/A>"

    def exception(self) -> str:
        """The exception that ended the worker, in one line; empty if it left no trace of one.

        From its error file, or else from the last traceback among the last lines of its stderr.
        """
        if self.error_file_data or self.traceback:
            return next((line for line in self.message.splitlines() if line.strip()), "")
        lines = [_GROUP.sub("", _RANK.sub("", line)) for line in self.stderr_tail]
        for index in range(len(lines) - 1, -1, -1):
            if _EXCEPTION.match(lines[index]):
                return lines[index]
            if lines[index].startswith("Traceback (most recent call last)"):
                return next((found for found in lines[index + 1 :] if found[:1].strip()), "")
        return ""

    def timestamp_isoformat(self) -> str:
        """The timestamp in local time, as ``2024-06-10_08:53:20``."""
        return time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(self.timestamp))


def exit_code_for(failure: ProcessFailure) -> int:
    """The exit code with which a launcher passes a failure on.

    The worker's own code where it fits into 1..255, ``128 + n`` after signal ``n``, else 1.
    """
    if failure.exitcode < 0:
        code = 128 - failure.exitcode
        return code if code <= 255 else FAILURE_CODE
    return failure.exitcode if 1 <= failure.exitcode <= 255 else FAILURE_CODE


def sort_by_cause(failures: Mapping[int, ProcessFailure]) -> list[tuple[int, ProcessFailure]]:
    """Sort failures, root cause first: victims last, then by when each was observed.

    Timestamps, which come from the clocks of several hosts, order only failures of which one was never
    observed.
    """
    are_observed = all(failure.observed for failure in failures.values())
    return sorted(
        failures.items(),
        key=lambda item: (item[1].victim, item[1].observed if are_observed else item[1].timestamp),
    )
