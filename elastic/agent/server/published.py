"""What an agent puts into `elastic.metrics`: the metrics of torch's agent that say how a job runs.

An `Instrument`, for a program that launches a job itself and has configured a handler. They are put where
something changes, and not again and again:

=====================================================  ====================================================
metric, behind ``workers.ROLE.``                       when, and value
=====================================================  ====================================================
``remaining_restarts``                                 in each new world: how many restarts the job has left
``healthy``, ``succeeded``, ``failed``, ``stopped``    the workers have come to that: 1
``run_total``                                          at the end: 1
``run_success_no_retries``, ``_with_retries``,         at the end: 1 for how it went, 0 for the other three
``run_failed_no_retries``, ``_with_retries``
``flakiness``                                          at the end: per cent of the restarts used; 100: failed
=====================================================  ====================================================
"""

from __future__ import annotations

from elastic.metrics import put_metric

from .instruments import Ended, Entered, Instrument, LoopEvent, WorkersStopped, WorkersSucceeded
from .spec import RunResult


class Published(Instrument):
    """Puts the metrics of an agent whose workers have `role`, in a job that survives `max_restarts`."""

    def __init__(self, role: str, *, max_restarts: int) -> None:
        self._role = role
        self._max_restarts = max_restarts
        self._spent = 0
        self._running: set[int] = set()

    def tell(self, event: LoopEvent) -> None:
        if isinstance(event, Entered):
            self._spent = min(event.info.failures, self._max_restarts)
            self._put("remaining_restarts", self._max_restarts - self._spent)
            self._running = {worker.global_rank for worker in event.group.workers}
            self._put("healthy", 1)
        elif isinstance(event, WorkersSucceeded):
            self._came_to("succeeded")
        elif isinstance(event, WorkersStopped):
            # What ended the job may have been another node's.
            self._came_to("failed" if self._running & event.failures.keys() else "stopped")
        elif isinstance(event, Ended) and event.result is not None:
            self._ended(event.result)

    def _came_to(self, state: str) -> None:
        """Told of a world once: workers that have succeeded are stopped as well."""
        if self._running:
            self._running = set()
            self._put(state, 1)

    def _ended(self, result: RunResult) -> None:
        how = "failed" if result.is_failed() else "success"
        tries = "with_retries" if self._spent else "no_retries"
        self._put("run_total", 1)
        for each in (
            "success_with_retries",
            "success_no_retries",
            "failed_with_retries",
            "failed_no_retries",
        ):
            self._put(f"run_{each}", int(each == f"{how}_{tries}"))
        used = 100 * self._spent // (self._max_restarts + 1)
        self._put("flakiness", 100 if result.is_failed() else used)

    def _put(self, name: str, value: int) -> None:
        put_metric(f"workers.{self._role}.{name}", value)
