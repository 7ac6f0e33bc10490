"""What became of a worker group: values, and how they come about. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic.multiprocessing.errors import ProcessFailure

UNKNOWN = "UNKNOWN"
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class RunProcsResult:
    """The outcome of a worker group, by local rank.

    Args:
        return_values: What the workers that ended well returned; None for a command.
        failures: The workers that failed by themselves, the first observed first.
        stdouts: Files that hold the output of the workers; empty where it isn't redirected.
        stderrs: The same for stderr.
        state: ``SUCCEEDED``, ``FAILED``, or ``STOPPED``: ended by the launcher, and none had failed.
        victims: The workers that ended badly after the launcher began to stop the group.
    """

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    state: str = UNKNOWN
    victims: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether any worker failed by itself."""
        return bool(self.failures)


class Outcomes:
    """What is known of each worker so far. An exit is noted first, and settled once its output is complete.

    Args:
        nprocs: How many workers there are.
    """

    def __init__(self, nprocs: int) -> None:
        self._nprocs = nprocs
        self._observed: dict[int, float] = {}
        self._returned: dict[int, Any] = {}
        self._failures: dict[int, ProcessFailure] = {}
        self._victims: dict[int, ProcessFailure] = {}

    @property
    def unsettled(self) -> dict[int, float]:
        """The workers whose exit is noted but not settled, with the time at which it was seen."""
        settled = self._returned.keys() | self._failures.keys() | self._victims.keys()
        return {rank: at for rank, at in self._observed.items() if rank not in settled}

    @property
    def succeeded(self) -> set[int]:
        """The local ranks of the workers that ended well."""
        return set(self._returned)

    def note_exit(self, local_rank: int, now: float) -> None:
        """A worker's end was seen at this monotonic time."""
        self._observed[local_rank] = now

    def settle_value(self, local_rank: int, value: Any) -> None:
        """A worker ended well."""
        self._returned[local_rank] = value

    def settle_failure(self, failure: ProcessFailure) -> None:
        """A worker ended badly."""
        (self._victims if failure.victim else self._failures)[failure.local_rank] = failure

    def result(
        self, *, stdouts: Mapping[int, str], stderrs: Mapping[int, str], is_stopped: bool, is_over: bool
    ) -> RunProcsResult | None:
        """Return the result, or None before a failure and before all workers are settled.

        ``is_stopped``: whether the launcher ended workers that still ran. ``is_over``: nothing more will
        become known.
        """
        settled = len(self._returned) + len(self._failures) + len(self._victims)
        if not self._failures and not is_over and settled < self._nprocs:
            return None
        state = FAILED if self._failures else STOPPED if is_stopped else SUCCEEDED
        return RunProcsResult(
            return_values=dict(sorted(self._returned.items())),
            failures=dict(sorted(self._failures.items(), key=lambda item: item[1].observed)),
            stdouts=dict(stdouts),
            stderrs=dict(stderrs),
            state=state,
            victims=dict(sorted(self._victims.items())),
        )
