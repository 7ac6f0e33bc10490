"""Four real workers that report their steps: the slow one is named."""

from __future__ import annotations

import contextlib
import select
import time

from support.reporting import PATIENCE, Worker, watching

from elastic.agent.server.stragglers import Finding, Pace, Stragglers
from elastic.timer.series import STEP
from elastic.timer.watch import WorkerWatch

SLOW = "import time, elastic.worker as w\nfor _ in range(20): time.sleep(0.2); w.step()\ntime.sleep(1000)\n"
STEPS = "import time, elastic.worker as w\nfor _ in range({steps}): time.sleep({seconds}); w.step()\n"


def run(watch: WorkerWatch, stragglers: Stragglers, workers: list[Worker]) -> list[Finding]:
    """As the agent's loop does, until somebody is named or all have ended."""
    found: list[Finding] = []
    give_up = time.monotonic() + 4 * PATIENCE
    while not found and any(worker.process.poll() is None for worker in workers):
        assert time.monotonic() < give_up
        at = min(t for t in (watch.wakeup(), stragglers.wakeup(), time.monotonic() + 1) if t is not None)
        select.select([watch], [], [], max(0.0, at - time.monotonic()))
        assert watch.poll() == []
        if stragglers.due(time.monotonic()):
            found += stragglers.look(watch.series(), time.monotonic())
    return found


def test_the_one_of_four_that_sleeps_twice_as_long_is_named_within_twenty_steps() -> None:
    stragglers, even = Stragglers(), STEPS.format(steps=1000, seconds=0.1)
    with watching(WorkerWatch()) as watch, contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(SLOW if rank == 2 else even, watch.environment())) for rank in range(4)
        ]
        watch.begin({rank: worker.pid for rank, worker in enumerate(workers)})
        found = run(watch, stragglers, workers)
    assert [(f.pace, f.rank, f.series) for f in found] == [(Pace.SLOW, 2, STEP)]
