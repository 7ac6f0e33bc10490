"""What happens to an agent, told as events and as metrics.

An `Instrument`, told of its own agent's deeds by the loop, and of changes of the shared state by the
rendezvous, which calls from a thread of its own. It decides nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from elastic.events import Event, job
from elastic.metrics import JobMetrics, RestartCause
from elastic.multiprocessing import ProcessFailure
from elastic.rendezvous import RendezvousInfo
from elastic.rendezvous.core import changes
from elastic.rendezvous.naming import name_of

from . import stragglers
from .causes import cause_of_first, cause_of_round
from .instruments import (
    Ended,
    Entered,
    Instrument,
    Joining,
    Leaving,
    LoopEvent,
    LoopState,
    Regrouping,
    WorkerFailed,
    WorkersStopped,
    WorkersSucceeded,
)
from .spec import Worker

_ORDERED = (changes.RoundOpened, changes.RoundFormed, changes.JobClosed, changes.NodeJoined, changes.NodeGone)


class Chronicle(Instrument):
    """Records events of `origin` by `record`, and tells `metrics`, which others may tell more."""

    def __init__(self, origin: job.Origin, *, record: Callable[[Event], None], metrics: JobMetrics) -> None:
        self._origin = origin
        self._record = record
        self.metrics = metrics
        self._lock = threading.Lock()  # held while something is told: what follows is of two threads
        self._began = time.monotonic()
        self._info: RendezvousInfo | None = None
        self._running: list[Worker] = []
        self._unwell: set[tuple[int, str]] = set()
        self._restarts = 0
        self._restart_to_tell: RestartCause | None = None
        self._newest: changes.RoundOpened | changes.RoundFormed | None = None
        self._is_superseded = False
        self._revision: int | None = None  # the newest that it was told of
        self._lease_lost_at: float | None = None
        self._closed: changes.JobClosed | None = None
        self._is_leaving = False

    # -- of the agent -----------------------------------------------------------------------------

    def tell(self, event: LoopEvent) -> None:
        with self._lock:
            if isinstance(event, Joining):
                self.metrics.left_world()
            elif isinstance(event, Entered):
                self._entered(event)
            elif isinstance(event, WorkerFailed):
                self._failed(event)
            elif isinstance(event, Regrouping):
                self._restarting(self._cause_of(event))
            elif isinstance(event, WorkersSucceeded):
                self._succeeded(event)
            elif isinstance(event, WorkersStopped):
                self._stopped(event)
            elif isinstance(event, Leaving):
                self._is_leaving = True
            elif isinstance(event, Ended):
                self._ended(event)

    def turn(self, state: LoopState) -> None:
        self.metrics.membership(waiting=state.waiting, spares=state.spares)

    def _entered(self, event: Entered) -> None:
        info = event.info
        workers = event.group.workers
        if self._restart_to_tell is not None:  # the failure was not the last: a lost node explains it
            self._restarting(self._restart_to_tell)
        self._info, self._running = info, workers
        self._heard_of(info.revision)
        if info.participants:  # static nodes have their ids only since they met
            self._origin = replace(self._origin, node_id=info.participants[info.rank].node_id)
        self.metrics.entered_world(
            round=info.round, world_size=workers[0].world_size, nodes=info.world_size, seconds=event.waited
        )
        self.metrics.workers_started()
        self.metrics.workers({"healthy": len(workers)})
        self._say(job.world_formed, cause=info.cause, seconds=event.waited, revision=info.revision)
        for worker in workers:
            self._say(job.worker_started, _facts(worker), cause=info.cause)
        if self._unwell:
            self._unwell.clear()
            self._health("its workers were started anew")
        newest, self._is_superseded = self._newest, False
        if newest is not None and newest.round.round > info.round:  # since the agent looked
            self._superseded(newest)

    def _failed(self, event: WorkerFailed) -> None:
        failure = event.failure
        cause = RestartCause.WORKER_STUCK if event.is_stuck else RestartCause.WORKER_FAILED
        if event.is_stuck:
            self._unwell.add((failure.rank, ""))
            self._health(failure.message)
        if failure.final:  # for all that this node knows there will be no restart
            self._restart_to_tell = cause
        else:
            self._restarting(cause)

    def _restarting(self, cause: RestartCause) -> None:
        self._restart_to_tell = None
        self._restarts += 1
        self.metrics.restarting(cause)
        # The word of the metric, so that both can be joined; why in full is told of the worker or the world.
        self._say(job.restart_begun, cause=cause.value)

    def _cause_of(self, event: Regrouping) -> RestartCause:
        newest, info = self._newest, self._info
        if not event.superseded:
            return cause_of_first(waiting=event.waiting, leaving=event.leaving)
        return cause_of_round(
            None if newest is None else newest.round,
            current=0 if info is None else info.round,
            node_id=self._origin.node_id,
        )

    def _succeeded(self, event: WorkersSucceeded) -> None:
        workers, self._running = self._running, []
        self.metrics.workers_done()
        self.metrics.workers({"succeeded": len(workers)})
        for worker in workers:
            self._say(job.worker_succeeded, _facts(worker), seconds=event.ran)

    def _stopped(self, event: WorkersStopped) -> None:
        workers, self._running = self._running, []
        if not workers:  # they had ended well, and what they left behind was stopped
            return
        failed = [w for w in workers if w.global_rank in event.failures]
        stopped = [w for w in workers if w.global_rank not in event.failures]
        self.metrics.workers({"failed": len(failed), "stopped": len(stopped)})
        for worker in failed:
            failure = event.failures[worker.global_rank]
            self._say(
                job.worker_failed,
                _facts(worker),
                exit_code=failure.exitcode,
                error=failure.exception() or failure.message,
                seconds=event.ran,
            )
        for worker in stopped:
            self._say(
                job.worker_stopped,
                _facts(worker),
                cause="stopped by its agent",
                seconds=event.ran,
                exit_code=_code(event.victims, worker),
            )

    def _ended(self, event: Ended) -> None:
        self.metrics.left_world()
        self.metrics.workers_done()
        if self._closed is not None:
            if self._info is None:
                self._job_ended(self._closed)
        elif event.error is not None and not self._is_leaving:
            self._say(job.world_lost, cause=str(event.error))

    # -- of the shared state ----------------------------------------------------------------------

    def changed(self, change: changes.Change) -> None:
        """Something changed in the shared state. May be called from any thread."""
        with self._lock:
            self._changed(change)

    def _changed(self, change: changes.Change) -> None:
        if isinstance(change, _ORDERED):
            self._heard_of(change.revision)
        if isinstance(change, (changes.RoundOpened, changes.RoundFormed)):
            self._round(change)
        elif isinstance(change, changes.NodeJoined):
            about = _about(change.node.node_id)
            self._say(job.node_joined, **about, cause="it registered", revision=change.revision)
        elif isinstance(change, changes.NodeGone):
            if self._closed is not None:  # they all go then
                return
            say = job.node_left if change.said_goodbye else job.node_lost
            why = change.cause if change.said_goodbye else "its lease ended"
            self._say(say, **_about(change.node_id), cause=why, revision=change.revision or None)
        elif isinstance(change, changes.JobClosed):
            self._closed = change
            if self._info is not None:  # else it may be the end of an earlier run, before a new one
                self._job_ended(change)
        elif isinstance(change, (changes.LeaseHeld, changes.LeaseLost, changes.LeaseRenewed)):
            self._lease(change)
        elif isinstance(change, changes.BackendAway):
            self.metrics.etcd_away()
            self._say(job.etcd_away, cause=change.reason)
        elif isinstance(change, changes.BackendBack):
            self.metrics.etcd_back()
            self._say(job.etcd_back, seconds=change.seconds)
        elif isinstance(change, changes.BackendAnswered):
            self.metrics.etcd_answered(change.operation, seconds=change.seconds, failed=change.failed)

    def _round(self, change: changes.RoundOpened | changes.RoundFormed) -> None:
        """There is a newer round; or the newest is formed: of that, `Entered` tells."""
        newest = self._newest
        is_new = newest is None or _number(newest) != _number(change)
        if newest is not None and newest.revision > change.revision:
            self._revision = change.revision  # an etcd that was wiped counts from its start
        self._newest, self._closed = change, None
        if is_new and self._info is not None and not self._is_superseded:
            self._superseded(change)

    def _superseded(self, change: changes.RoundOpened | changes.RoundFormed) -> None:
        self._is_superseded = True
        self._say(job.world_superseded, cause=change.round.cause, revision=change.revision)

    def _job_ended(self, change: changes.JobClosed) -> None:
        end = change.terminal
        self._say(job.job_ended, succeeded=end.exit_code == 0, cause=end.reason, revision=change.revision)

    def _lease(self, change: changes.LeaseHeld | changes.LeaseLost | changes.LeaseRenewed) -> None:
        now = time.monotonic()
        if isinstance(change, changes.LeaseLost):
            if self._lease_lost_at is None:
                self._lease_lost_at = now
                self.metrics.lease_lost()
                self._say(job.lease_lost, cause=change.reason)
            return
        self.metrics.lease_renewed()
        if isinstance(change, changes.LeaseHeld) and self._lease_lost_at is not None:
            lost_at, self._lease_lost_at = self._lease_lost_at, None
            self._say(job.lease_regained, cause="it asked for another one", seconds=now - lost_at)

    def found(self, finding: stragglers.Finding) -> None:
        """A worker is slow or stuck for all that its own times say, or no longer."""
        is_better = finding.pace in (stragglers.Pace.EVEN, stragglers.Pace.MOVING)
        # A rank can be slow in several sections, and stuck besides.
        is_stuck = finding.pace in (stragglers.Pace.STUCK, stragglers.Pace.MOVING)
        trouble = (finding.rank, "" if is_stuck else finding.series)
        with self._lock:
            (self._unwell.discard if is_better else self._unwell.add)(trouble)
            self._health(str(finding))

    # -- both -------------------------------------------------------------------------------------

    def _health(self, why: str) -> None:
        self.metrics.health_changed(healthy=not self._unwell)
        self._say(job.health_changed, healthy=not self._unwell, cause=why)

    def _say(self, make: Callable[..., Event], *about: object, **facts: object) -> None:
        self._record(make(self._origin, self._standpoint(), *about, **facts))

    def _heard_of(self, revision: int | None) -> None:
        if revision:  # 0: not known
            self._revision = max(revision, self._revision or 0)

    def _standpoint(self) -> job.Standpoint:
        info = self._info
        return job.Standpoint(
            round=None if info is None else info.round,
            revision=self._revision,
            group_rank=None if info is None else info.rank,
            group_world_size=None if info is None else info.world_size,
            agent_restarts=self._restarts,
            total_run_time=time.monotonic() - self._began,
        )


def _about(node_id: str) -> dict[str, str]:
    return {"node": name_of(node_id), "node_id": node_id}


def _number(change: changes.RoundOpened | changes.RoundFormed) -> tuple[int, int]:
    return change.round.incarnation, change.round.round


def _facts(worker: Worker) -> job.WorkerFacts:
    return job.WorkerFacts(
        local_rank=worker.local_rank,
        global_rank=worker.global_rank,
        role_rank=worker.role_rank,
        role_world_size=worker.role_world_size,
        pid=worker.id,
    )


def _code(victims: Mapping[int, ProcessFailure], worker: Worker) -> int | None:
    """The exit code of a worker that was stopped; None where it ended well, or nobody knows."""
    victim = victims.get(worker.global_rank)
    return None if victim is None else victim.exitcode
