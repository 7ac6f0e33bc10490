"""How soon workers are started again after a failure, and when there is no point in it. Pure.

A failure is *at once* when the workers had run for less than `progress_after`. The first restart is
immediate. As long as failures come at once, each further restart waits twice as long as the one before;
when it is moreover the same failure time after time, the job ends early. A world that is formed anew for
any other reason never waits.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic.multiprocessing import ProcessFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Settings; durations are seconds.

    `backoff` is the pause before the second restart in a row (0: never a pause), and `longest` the
    longest. `same_failures` is how many equal failures in a row end the job whatever the budget allows
    (0: none do). `progress_after` is how long workers must have run for their failure not to count as one
    at once. ValueError for impossible values.
    """

    backoff: float = 1.0
    longest: float = 30.0
    same_failures: int = 5
    progress_after: float = 60.0

    def __post_init__(self) -> None:
        for name in ("backoff", "longest", "same_failures", "progress_after"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must not be negative")


@dataclass(frozen=True, slots=True)
class Streak:
    """Failures in a row: how many, and how many equal ones at the end of them.

    All but the first came at once; the first may have come after long work.
    """

    failures: int = 0
    equal: int = 0
    last: tuple[int, str] | None = None

    def after(self, failure: ProcessFailure, *, ran: float, policy: RestartPolicy) -> Streak:
        """The streak with one more failure, of workers that had run for `ran` seconds."""
        kind = (failure.exitcode, failure.exception() or (failure.stderr_tail or ("",))[-1])
        if ran >= policy.progress_after:
            return Streak(1, 1, kind)
        return Streak(self.failures + 1, self.equal + 1 if kind == self.last else 1, kind)

    def is_hopeless(self, policy: RestartPolicy) -> bool:
        """Whether a further restart would only repeat the failure."""
        return 0 < policy.same_failures <= self.equal

    def pause(self, policy: RestartPolicy, *, jitter: float) -> float:
        """How long to wait before the next restart. `jitter` is a random number from 0 to 1.

        It takes up to half of the pause away, so that nodes that failed together do not start together.
        """
        if self.failures < 2 or not policy.backoff:
            return 0.0
        doublings = min(self.failures - 2, 32)  # more than any sensible limit has
        return min(policy.longest, policy.backoff * 2.0**doublings) * (1 - jitter / 2)
