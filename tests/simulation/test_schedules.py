"""Random schedules of faults against the real protocol and shell; see :mod:`support.schedules`.

Some thousand seeds run each time over etcd, and fewer over the document in a plain store, where a seed
takes longer. ELASTIC_SEEDS=20000 runs more of both, ELASTIC_FIRST_SEED=n starts elsewhere, and a failing seed
prints what happened: `Schedule(seed, over=PLACES[place]).run()` repeats it to the letter.
`scripts/simulate` runs any number of them on all cores.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from support.schedules import PLACES, Schedule

SEEDS = int(os.environ.get("ELASTIC_SEEDS", "2000"))
FIRST = int(os.environ.get("ELASTIC_FIRST_SEED", "0"))
PARTS = 8
FEWER = {"etcd": 1, "document": 50}

REACHED = (
    "rounds",
    "failures counted",
    "settled with a world",
    *(f"ended: {how}" for how in ("SUCCEEDED", "FAILED", "CLOSED")),
    *(f"gone: {how}" for how in ("ended", "evicted", "left", "gave up", "crashed")),
    *(
        f"step: {step}"
        for step in (
            *("joining", "active", "stopping", "done", "waiting", "spare", "leaving"),
            *("open", "form", "announce", "close", "evict", "incarnate", "restore", "claim", "campaign"),
        )
    ),
    *(f"said: {what}" for what in ("waiting=", "was overtaken", "arrives late", "answer arrives", "final")),
)
# What takes a longer way is not got to in so few seeds; the thousands of `scripts/simulate` do.
REACHED_OVER_A_DOCUMENT = (
    *("rounds", "failures counted", "settled with a world", "gone: evicted", "gone: left", "gone: crashed"),
    *(
        f"step: {step}"
        for step in ("spare", "evict", "incarnate", "restore", "campaign", "expired", "dropped")
    ),
    *(f"said: {what}" for what in ("met another document", "no answer to tend", "arrives late", "in time")),
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("place", PLACES)
def test_no_schedule_breaks_a_promise(place: str, part: int) -> None:
    for seed in range(FIRST + part, FIRST + SEEDS // FEWER[place], PARTS):
        Schedule(seed, over=PLACES[place]).run()


@pytest.mark.parametrize(
    ("place", "seeds", "reached"),
    [("etcd", 200, REACHED), ("document", 25, REACHED_OVER_A_DOCUMENT)],
)
def test_schedules_reach_what_matters(place: str, seeds: int, reached: tuple[str, ...]) -> None:
    """A random test that rarely gets anywhere passes for nothing: count where these get."""
    seen: Counter[str] = Counter()
    for seed in range(seeds):
        schedule = Schedule(seed, over=PLACES[place])
        schedule.run()
        seen += schedule.seen
    assert {what: seen[what] for what in reached if not seen[what]} == {}


@pytest.mark.parametrize("place", PLACES)
def test_a_seed_tells_the_whole_story(place: str) -> None:
    first, second = (Schedule(7, over=PLACES[place]) for _ in range(2))
    first.run()
    second.run()
    assert first.world.trace == second.world.trace
