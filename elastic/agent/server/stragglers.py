"""Which ranks are slower than the others, and which are stuck, by the times that they measured. Pure.

Each rank's latest steps, and each named section of them, are compared with those of the other ranks. A rank
is slow if it is so persistently: nearly each of its latest times, in the older and in the newer half of the
window, must be well above what is typical of the others. So neither a few long steps nor a machine that is
busy now and then name anybody; and what is typical, a median of medians, does not move with a slow rank. A
rank that is named stays so until its times are ordinary again.

A rank is stuck if its latest step ended many times longer ago than a step takes.

Time comes in as monotonic seconds. The agent's loop asks `due` and calls `look` with what
:meth:`elastic.timer.watch.WorkerWatch.series` returns; a loop that sleeps wakes at `wakeup`, and since that
is None while it is switched off, so does nobody.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from elastic.timer.series import FIRST_LOOK, STEP, Series

_SIGMA = 1.4826  # the standard deviation of a normal distribution, in median absolute deviations
_FEWEST_STEPS = 3  # before that the typical duration of a step is not known: the first ones are longer
_SOONEST_LOOK = 0.25  # seconds, for the shortest of steps
_LATEST_LOOK = 60.0  # seconds, while nothing moves


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerPolicy:
    """When a rank is named.

    It is slow if its times exceed what is typical by the factor `slow_ratio`, by `least_seconds`, and by
    `deviations` standard deviations of the others; and no longer if they are below `even_ratio`. It is stuck
    after `stuck_ratio` typical steps without a step, but not before `stuck_seconds`. `window` is how many of
    the latest times count. ValueError where the numbers contradict each other.
    """

    window: int = FIRST_LOOK
    slow_ratio: float = 1.5
    even_ratio: float = 1.2
    deviations: float = 3.0
    least_seconds: float = 0.002
    stuck_ratio: float = 10.0
    stuck_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.window < 4 or self.window % 2:
            raise ValueError(f"window is {self.window}: it must be an even number, 4 or more")
        if not 1 < self.even_ratio <= self.slow_ratio:
            raise ValueError(
                f"even_ratio is {self.even_ratio} and slow_ratio is {self.slow_ratio}: "
                "they must be above 1, and the first not above the second"
            )
        if self.stuck_ratio <= 1:
            raise ValueError(f"stuck_ratio is {self.stuck_ratio}: it must be above 1")


class Pace(enum.Enum):
    """What is new about how a rank keeps up."""

    SLOW = "slow"
    EVEN = "no longer slow"
    STUCK = "stuck"
    MOVING = "no longer stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """News of one rank. `seconds` is its own time, and `typical` that of the others."""

    pace: Pace
    rank: int
    series: str
    seconds: float
    typical: float

    def __str__(self) -> str:
        whose = "steps" if self.series == STEP else f"section {self.series!r}"
        match self.pace:
            case Pace.SLOW:
                return (
                    f"rank {self.rank} is slow: its {whose} took {self.seconds:.3g} s, "
                    f"{self.seconds / self.typical:.1f} times as long as is typical of the other ranks"
                )
            case Pace.EVEN:
                return f"rank {self.rank} is no longer slow: its {whose} took {self.seconds:.3g} s"
            case Pace.STUCK:
                return (
                    f"rank {self.rank} is stuck: its latest step ended {self.seconds:.3g} s ago, "
                    f"and a step takes {self.typical:.3g} s"
                )
            case Pace.MOVING:
                return f"rank {self.rank} is no longer stuck"


class Stragglers:
    """Who is slow or stuck, as of the last look, in one round after another."""

    def __init__(self, policy: StragglerPolicy | None = None, *, enabled: bool = True) -> None:
        self._policy = policy or StragglerPolicy()
        self._enabled = enabled
        self.begin()

    @property
    def enabled(self) -> bool:
        return self._enabled

    def switch(self, *, enabled: bool) -> None:
        """Switch it on or off. Whoever is slow then is named anew after it was off."""
        if enabled != self._enabled:
            self._enabled = enabled
            self.begin()

    def begin(self) -> None:
        """The workers were started anew: nothing is known of them."""
        self.slow: set[tuple[int, str]] = set()
        """The ranks that are slow, each with the name of its steps or section."""
        self.stuck: set[int] = set()
        self.medians: dict[str, dict[int, float]] = {}
        """The typical time of each rank that has measured enough, in seconds, by name."""
        self._counts: dict[int, int] = {}
        self._next_look: float | None = None
        self._interval = _SOONEST_LOOK

    def wakeup(self) -> float | None:
        """When to look again; None where nothing is known, or while it is switched off."""
        return self._next_look if self._enabled else None

    def due(self, now: float) -> bool:
        """Whether to look now. Where nothing is known yet, every occasion will do."""
        return self._enabled and (self._next_look is None or now >= self._next_look)

    def look(self, times: Mapping[str, Mapping[int, Series]], now: float) -> list[Finding]:
        """What is new. `times` are the series of all ranks that run, by name and rank."""
        if not self._enabled:
            return []
        self.medians = {}
        findings: list[Finding] = []
        for name, ranks in sorted(times.items()):
            findings += self._compare(name, ranks)
        steps = times.get(STEP, {})
        findings += self._find_stuck(steps, now)
        self._plan(steps, now)
        return findings

    # -- slow ----------------------------------------------------------------------------------------

    def _compare(self, name: str, ranks: Mapping[int, Series]) -> list[Finding]:
        window = self._policy.window
        recent = {
            rank: series.durations[-window:]
            for rank, series in sorted(ranks.items())
            if len(series.durations) >= window
        }
        if not recent:
            return []
        medians = self.medians[name] = {rank: median(durations) for rank, durations in recent.items()}
        findings = []
        for rank, durations in recent.items():
            others = [value for other, value in medians.items() if other != rank]
            if not others:
                continue
            typical = median(others)
            was_slow = (rank, name) in self.slow
            is_slow = self._stays_slow(durations, typical) if was_slow else self._is_slow(durations, others)
            if is_slow != was_slow:
                (self.slow.add if is_slow else self.slow.discard)((rank, name))
                findings.append(
                    Finding(
                        pace=Pace.SLOW if is_slow else Pace.EVEN,
                        rank=rank,
                        series=name,
                        seconds=medians[rank],
                        typical=typical,
                    )
                )
        return findings

    def _is_slow(self, durations: tuple[float, ...], others: list[float]) -> bool:
        typical = median(others)
        spread = _SIGMA * median([abs(value - typical) for value in others])
        limit = typical + max(
            typical * (self._policy.slow_ratio - 1),
            spread * self._policy.deviations,
            self._policy.least_seconds,
        )
        # The lower quartile, not the median: a few ordinary times among long ones clear a rank.
        return all(sorted(half)[(len(half) - 1) // 4] > limit for half in _halves(durations))

    def _stays_slow(self, durations: tuple[float, ...], typical: float) -> bool:
        limit = typical * self._policy.even_ratio
        return any(median(half) > limit for half in _halves(durations))

    # -- stuck ---------------------------------------------------------------------------------------

    def _find_stuck(self, steps: Mapping[int, Series], now: float) -> list[Finding]:
        findings = []
        limit = self._stuck_after(steps)
        for rank, series in sorted(steps.items(), key=lambda item: (item[1].count, item[0])):
            idle = now - series.last_at
            is_stuck = series.count >= _FEWEST_STEPS and limit is not None and idle > limit
            if is_stuck != (rank in self.stuck):
                (self.stuck.add if is_stuck else self.stuck.discard)(rank)
                findings.append(
                    Finding(
                        pace=Pace.STUCK if is_stuck else Pace.MOVING,
                        rank=rank,
                        series=STEP,
                        seconds=idle,
                        typical=_typical(steps.values()) or 0.0,
                    )
                )
        return findings

    def _stuck_after(self, steps: Mapping[int, Series]) -> float | None:
        typical = _typical(steps.values())
        if typical is None:
            return None
        return max(self._policy.stuck_seconds, self._policy.stuck_ratio * typical)

    # -- when to look --------------------------------------------------------------------------------

    def _plan(self, steps: Mapping[int, Series], now: float) -> None:
        """Every other step, and ever more rarely while nothing moves."""
        typical, limit = _typical(steps.values()), self._stuck_after(steps)
        counts = {rank: series.count for rank, series in steps.items()}
        moves = counts != self._counts
        self._counts = counts
        if typical is None or limit is None:
            self._next_look = None
            return
        at_least = max(_SOONEST_LOOK, 2 * typical)
        self._interval = at_least if moves else min(max(2 * self._interval, at_least), _LATEST_LOOK)
        times = [s.last_at + limit for rank, s in steps.items() if rank not in self.stuck]
        self._next_look = min([now + self._interval, *(at for at in times if at > now)])


def _halves(durations: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    middle = len(durations) // 2
    return durations[:middle], durations[middle:]


def _typical(all_series: Iterable[Series]) -> float | None:
    """How long a step of an ordinary rank takes; None before that is known."""
    medians = [median(s.durations) for s in all_series if len(s.durations) >= _FEWEST_STEPS]
    return median(medians) if medians else None
