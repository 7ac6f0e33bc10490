"""What workers report of themselves, as an instrument: deadlines, signs of life, and who is slow.

A worker whose deadline has passed, or that is silent for too long, counts as failed. One that is slow, or
stuck for all that its steps say, is only named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from elastic.timer.series import Series
from elastic.timer.watch import WorkerWatch

from .instruments import Entered, Instrument, Joining, LoopEvent, LoopState
from .stragglers import Finding, Stragglers

log = logging.getLogger("elastic.agent")


class Reports(Instrument):
    """Owns `watch`.

    `found` is called with each finding of `stragglers`, after it was logged, and `measured` with the typical
    times of all ranks, in seconds by name and rank, where they are new.
    """

    def __init__(
        self,
        watch: WorkerWatch,
        stragglers: Stragglers,
        *,
        found: Callable[[Finding], None] = lambda _: None,
        measured: Callable[[Mapping[str, Mapping[int, float]]], None] = lambda _: None,
    ) -> None:
        self._watch = watch
        self._stragglers = stragglers
        self._found = found
        self._measured = measured
        self._shown: Mapping[str, Mapping[int, float]] = {}
        self._is_on = stragglers.enabled
        self._ranks: dict[int, int] = {}
        self._failed: dict[int, str] = {}

    def environment(self, local_rank: int) -> Mapping[str, str]:  # noqa: ARG002 - it is the same for all
        return self._watch.environment()

    def tell(self, event: LoopEvent) -> None:
        if isinstance(event, Entered):
            self._ranks = {worker.local_rank: worker.global_rank for worker in event.group.workers}
            self._watch.begin(event.processes)
            self._stragglers.begin()
        elif not isinstance(event, Joining):  # whatever else happens ends the work of these workers
            self._failed = {}
            self._ranks = {}
            self._watch.end()
            self._stragglers.begin()

    def turn(self, state: LoopState) -> None:
        wanted = state.find_stragglers
        self._stragglers.switch(enabled=self._is_on if wanted is None else wanted)
        for overdue in self._watch.poll():
            self._failed.setdefault(overdue.local_rank, overdue.sentence(self._ranks[overdue.local_rank]))
        now = time.monotonic()
        is_due = self._ranks and self._stragglers.due(now)
        findings = self._stragglers.look(self._series(), now) if is_due else []
        if self._stragglers.medians is not self._shown:
            self._shown = self._stragglers.medians
            self._measured(self._shown)
        for finding in findings:
            log.warning("%s", finding)
            self._found(finding)

    def fileno(self) -> int | None:
        return self._watch.fileno()

    def wakeup(self) -> float | None:
        times = [self._watch.wakeup(), self._stragglers.wakeup() if self._ranks else None]
        return min((at for at in times if at is not None), default=None)

    def failed_workers(self) -> Mapping[int, str]:
        return self._failed

    def close(self) -> None:
        self._watch.close()

    def _series(self) -> dict[str, dict[int, Series]]:
        """The series of this node's workers, by name and global rank."""
        return {
            name: {self._ranks[local_rank]: series for local_rank, series in of_ranks.items()}
            for name, of_ranks in self._watch.series().items()
        }
