"""What a kind of agent provides: the worker processes of one node.

`SimpleElasticAgent` has these hooks for its subclasses to fill in; the loop drives workers by nothing else.
None of them may block. They decide nothing about the job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from .spec import RunResult, WorkerGroup


class WorkerHooks(ABC):
    """The hooks, in the order in which the loop uses them."""

    @abstractmethod
    def _start_workers(self, group: WorkerGroup, environments: dict[int, dict[str, str]]) -> dict[int, int]:
        """Start the workers, each with its environment; returns their process ids by local rank.

        Raises OSError, and leaves none running, where one cannot be started.
        """

    @abstractmethod
    def _monitor_workers(self, group: WorkerGroup) -> RunResult:
        """How the workers are now. A failure is one that the agent did not cause."""

    @abstractmethod
    def _stop_workers(self, group: WorkerGroup, death_signal: int, timeout: float) -> None:
        """Begin to stop all workers and what they started; again, with a shorter timeout, to hurry."""

    @abstractmethod
    def _workers_stopped(self, group: WorkerGroup) -> bool:
        """Do what is due of the stopping; whether it is over."""

    @abstractmethod
    def _workers_fd(self, group: WorkerGroup) -> int | None:
        """A descriptor that is readable when something happened to a worker; None where none runs."""

    @abstractmethod
    def _workers_wakeup(self, group: WorkerGroup) -> float | None:
        """The monotonic time at which the workers need attention at the latest."""

    def _notify_workers(self, group: WorkerGroup, number: int) -> set[int]:  # noqa: ARG002
        """Send a signal that is only news; returns the local ranks that don't want it. Default: all."""
        return {worker.local_rank for worker in group.workers}

    def _running_workers(self, group: WorkerGroup) -> set[int]:
        """The local ranks of the workers that had not ended when they were monitored last. Default: all."""
        return {worker.local_rank for worker in group.workers}

    def _succeeded_workers(self, group: WorkerGroup) -> set[int]:  # noqa: ARG002
        """The local ranks of the workers that had ended well when they were monitored last. Default: none."""
        return set()
