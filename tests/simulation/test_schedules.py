"""Random schedules of faults against the real protocol and shell; see :mod:`support.schedules`.

Some thousand seeds run each time. ELASTIC_SEEDS=20000 runs more, ELASTIC_FIRST_SEED=n starts elsewhere,
and a failing seed prints what happened: `Schedule(seed).run()` repeats it to the letter. `scripts/simulate`
runs any number of them on all cores.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from support.schedules import Schedule

SEEDS = int(os.environ.get("ELASTIC_SEEDS", "2000"))
FIRST = int(os.environ.get("ELASTIC_FIRST_SEED", "0"))
PARTS = 8

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


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The shells' warnings, of thousands of nodes, would tell nobody anything; the trace has it all."""
    log = logging.getLogger("elastic.rendezvous")
    log.disabled = True
    yield
    log.disabled = False


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_breaks_a_promise(part: int) -> None:
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        Schedule(seed).run()


def test_schedules_reach_what_matters() -> None:
    """A random test that rarely gets anywhere passes for nothing: count where these get."""
    seen: Counter[str] = Counter()
    for seed in range(200):
        schedule = Schedule(seed)
        schedule.run()
        seen += schedule.seen
    assert {what: seen[what] for what in REACHED if not seen[what]} == {}


def test_a_seed_tells_the_whole_story() -> None:
    first, second = Schedule(7), Schedule(7)
    first.run()
    second.run()
    assert first.world.trace == second.world.trace
