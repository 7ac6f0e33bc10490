"""Who is named as slow or stuck: by made-up times of many kinds, and who must not be."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from elastic.agent.server.stragglers import Finding, Pace, StragglerPolicy, Stragglers
from elastic.timer.series import STEP, Series

KEPT = 64


@dataclass
class Rank:
    """One that does step after step, each as long as `duration` says."""

    duration: Callable[[], float]
    durations: list[float] = field(default_factory=list)
    at: float = 0.0

    def run_to(self, now: float) -> None:
        while (duration := self.duration()) + self.at <= now:
            self.at += duration
            self.durations.append(duration)

    @property
    def series(self) -> Series:
        return Series(len(self.durations), self.at, tuple(self.durations[-KEPT:]))


def run(
    ranks: Mapping[int, Rank], stragglers: Stragglers, until: Callable[[], bool], *, name: str = STEP
) -> list[Finding]:
    """Time passes, and the agent looks when it wants to."""
    found: list[Finding] = []
    now = 0.0
    while not until():
        now = max(now + 0.05, stragglers.wakeup() or 0.0)
        for rank in ranks.values():
            rank.run_to(now)
        if stragglers.due(now):
            found += stragglers.look({name: {i: rank.series for i, rank in ranks.items()}}, now)
    return found


def steadily(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def all_have(ranks: Mapping[int, Rank], steps: int) -> Callable[[], bool]:
    return lambda: all(len(rank.durations) >= steps for rank in ranks.values())


@pytest.mark.parametrize("seconds", [0.02, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("world", [2, 4, 64])
def test_a_rank_that_takes_twice_as_long_is_named_within_twenty_steps(world: int, seconds: float) -> None:
    ranks = {i: Rank(steadily(seconds)) for i in range(world)}
    ranks[1] = slow = Rank(steadily(2 * seconds))
    stragglers = Stragglers(StragglerPolicy(stuck_seconds=1e6))
    found = run(ranks, stragglers, lambda: bool(stragglers.slow))
    assert [(f.pace, f.rank) for f in found] == [(Pace.SLOW, 1)]
    assert len(slow.durations) <= (20 if seconds >= 0.1 else 32), "steps of 0.02 s are looked at in dozens"
    assert str(found[0]) == (
        f"rank 1 is slow: its steps took {2 * seconds:.3g} s, "
        "2.0 times as long as is typical of the other ranks"
    )


def gauss(source: random.Random, spread: float) -> Callable[[], float]:
    return lambda: max(0.01, source.gauss(0.1, spread))


def bursts(source: random.Random) -> Callable[[], float]:
    return lambda: 0.1 * (3.0 if source.random() < 0.25 else 1.0)


def heavy_tail(source: random.Random) -> Callable[[], float]:
    return lambda: 0.1 * (0.9 + 0.2 * source.paretovariate(1.5))


def drifting(source: random.Random) -> Callable[[], float]:
    steps = itertools.count()
    return lambda: 0.1 * (1 + next(steps) / 500) * source.uniform(0.8, 1.2)


EVEN: dict[str, Callable[[random.Random], Callable[[], float]]] = {
    "ten percent of noise": lambda source: gauss(source, 0.01),
    "thirty percent of noise": lambda source: gauss(source, 0.03),
    "every fourth step is three times as long": bursts,
    "a heavy tail": heavy_tail,
    "ever slower, all of them": drifting,
}


@pytest.mark.parametrize("kind", EVEN)
def test_nobody_is_named_in_a_thousand_even_steps(kind: str) -> None:
    for seed in range(5):
        ranks = {i: Rank(EVEN[kind](random.Random(100 * seed + i))) for i in range(8)}
        assert run(ranks, Stragglers(), all_have(ranks, 1000)) == []


def test_a_slow_rank_is_named_in_noise_too() -> None:
    ranks = {i: Rank(gauss(random.Random(i), 0.02)) for i in range(4)}
    source = random.Random(7)
    ranks[3] = Rank(lambda: 2 * max(0.01, source.gauss(0.1, 0.02)))
    stragglers = Stragglers()
    run(ranks, stragglers, all_have(ranks, 40))
    assert stragglers.slow == {(3, STEP)}


def test_a_named_rank_stays_so_until_it_is_even_again_and_is_told_once() -> None:
    pace = [0.2]
    ranks = {0: Rank(steadily(0.1)), 1: Rank(steadily(0.1)), 2: Rank(lambda: pace[0])}
    stragglers = Stragglers()
    found = run(ranks, stragglers, all_have(ranks, 100))
    pace[0] = 0.13  # between the two limits
    found += run_on(ranks, stragglers, 100)
    assert [(f.pace, f.rank) for f in found] == [(Pace.SLOW, 2)]
    pace[0] = 0.1
    found = run_on(ranks, stragglers, 100)
    assert [(f.pace, f.rank) for f in found] == [(Pace.EVEN, 2)]
    assert str(found[0]) == "rank 2 is no longer slow: its steps took 0.1 s"
    pace[0] = 0.13
    assert run_on(ranks, stragglers, 100) == [], "as slow as that it is not named"


def run_on(ranks: Mapping[int, Rank], stragglers: Stragglers, steps: int) -> list[Finding]:
    found: list[Finding] = []
    goal = max(len(rank.durations) for rank in ranks.values()) + steps
    now = max(rank.at for rank in ranks.values())
    while max(len(rank.durations) for rank in ranks.values()) < goal:
        now += 0.25
        for rank in ranks.values():
            rank.run_to(now)
        found += stragglers.look({STEP: {i: rank.series for i, rank in ranks.items()}}, now)
    return found


def test_ranks_that_wait_for_each_other_are_told_apart_by_their_sections() -> None:
    def series(durations: Iterable[float]) -> Series:
        durations = tuple(durations)
        return Series(len(durations), 10.0, durations)

    times = {
        STEP: {rank: series([0.5] * 20) for rank in range(3)},
        "forward": {0: series([0.1] * 20), 1: series([0.1] * 20), 2: series([0.4] * 20)},
    }
    stragglers = Stragglers()
    (finding,) = stragglers.look(times, 10.0)
    assert str(finding) == (
        "rank 2 is slow: its section 'forward' took 0.4 s, 4.0 times as long as is typical of the other ranks"
    )
    assert stragglers.medians["forward"] == {0: 0.1, 1: 0.1, 2: 0.4}


def test_differences_that_nobody_can_measure_name_nobody() -> None:
    times = {"tiny": {rank: Series(20, 1.0, (1e-6 * (1 + rank),) * 20) for rank in range(4)}}
    assert Stragglers().look(times, 1.0) == []


def test_alone_or_with_too_few_times_there_is_nothing_to_compare() -> None:
    few = Series(15, 1.0, (0.1,) * 15)
    assert Stragglers().look({STEP: {0: few, 1: Series(15, 1.0, (0.9,) * 15)}}, 1.0) == []
    assert Stragglers().look({STEP: {0: Series(20, 1.0, (0.9,) * 20)}}, 1.0) == []
    assert Stragglers().look({}, 1.0) == []


def test_a_rank_whose_steps_stop_is_stuck_and_wakes_the_loop() -> None:
    stragglers = Stragglers()
    now = [100.0]

    def look(*stopped: int) -> list[str]:
        now[0] = max(now[0] + 1e-3, stragglers.wakeup() or 0.0)
        steps = {
            rank: Series(20, 99.9, (0.1,) * 20)
            if rank in stopped
            else Series(int(now[0] * 10), now[0], (0.1,) * 20)
            for rank in range(3)
        }
        return [str(finding) for finding in stragglers.look({STEP: steps}, now[0])]

    found: list[str] = []
    while not found:
        found = look(2)
    assert 129.9 < now[0] < 131
    assert found[0].startswith("rank 2 is stuck: its latest step ended 30")
    assert stragglers.stuck == {2}
    assert [look(2) for _ in range(5)] == [[]] * 5
    assert look() == ["rank 2 is no longer stuck"]


def test_while_nothing_moves_it_looks_ever_more_rarely() -> None:
    stragglers = Stragglers()
    times = {STEP: {rank: Series(20, 100.0, (0.1,) * 20) for rank in range(3)}}
    now, looks = 100.0, 0
    while now < 1100:
        stragglers.look(times, now)
        looks += 1
        now = stragglers.wakeup() or 0.0
    assert looks < 40
    assert stragglers.stuck == {0, 1, 2}


def test_the_first_steps_are_allowed_to_be_long() -> None:
    times = {STEP: {0: Series(1, 10.0, (0.1,)), 1: Series(5, 400.0, (0.1,) * 5)}}
    assert Stragglers().look(times, 400.0) == []


def test_switched_off_it_neither_looks_nor_wakes_anybody() -> None:
    times = {STEP: {rank: Series(20, 1.0, (0.1 + 0.1 * (rank == 1),) * 20) for rank in range(3)}}
    stragglers = Stragglers(enabled=False)
    assert (stragglers.look(times, 1.0), stragglers.wakeup(), stragglers.due(1.0)) == ([], None, False)
    stragglers.switch(enabled=True)
    assert stragglers.due(1.0)
    assert [f.rank for f in stragglers.look(times, 1.0)] == [1]
    assert stragglers.wakeup() is not None
    stragglers.switch(enabled=False)
    assert (stragglers.slow, stragglers.wakeup()) == (set(), None)
    stragglers.switch(enabled=True)
    assert [f.rank for f in stragglers.look(times, 2.0)] == [1], "it is named anew"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": 5}, "window is 5"),
        ({"window": 2}, "window is 2"),
        ({"slow_ratio": 1.1}, "even_ratio is 1.2 and slow_ratio is 1.1"),
        ({"stuck_ratio": 1.0}, "stuck_ratio is 1.0"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StragglerPolicy(**settings)  # type: ignore[arg-type]
