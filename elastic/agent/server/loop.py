"""The one loop that every agent runs: it alternates between the rendezvous and its workers.

It sleeps until a worker ends, the membership changes, a signal comes, an instrument has something or a time
is up; :mod:`.policy` decides what to do then. Workers are driven by the hooks alone, which do not block. The
only other thread is the one in which `next_rendezvous` waits.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic.multiprocessing.signals import signal_name
from elastic.rendezvous import Member, RendezvousInfo, Standing

from . import endings
from .exchange import with_participants
from .failures import STUCK, FailureLog, failure_to_start, stuck
from .hooks import WorkerHooks
from .instruments import (
    Ended,
    Entered,
    Instruments,
    Joining,
    Leaving,
    LoopState,
    Regrouping,
    WorkerFailed,
    WorkersStopped,
    WorkersSucceeded,
)
from .joining import Join
from .notices import Notices
from .policy import Decision, Move, Phase, Scene, decide
from .restarts import RestartPolicy
from .settling import environments, settle
from .spec import RunResult, WorkerGroup, WorkerState
from .waiting import Doorbell, Orders, wait

log = logging.getLogger("elastic.agent")

_DECIDES = (Phase.RUNNING, Phase.NOTICE, Phase.BARRIER)  # the phases in which the policy is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """See `SimpleElasticAgent`. Durations are seconds; ValueError for a negative one."""

    exit_barrier_timeout: float = 300
    shutdown_timeout: float = 30
    notice_timeout: float = 0
    notice_signal: int = 0
    restarts: RestartPolicy = field(default_factory=RestartPolicy)

    def __post_init__(self) -> None:
        for name in ("exit_barrier_timeout", "shutdown_timeout", "notice_timeout"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must not be negative")


class Loop:
    """One run of an agent over the workers that `hooks` provides for `group`."""

    def __init__(
        self,
        hooks: WorkerHooks,
        group: WorkerGroup,
        *,
        settings: AgentSettings,
        bell: Doorbell,
        orders: Orders,
        instruments: Instruments,
    ) -> None:
        self._hooks = hooks
        self._group = group
        self._spec = group.spec
        self._settings = settings
        self._bell = bell
        self._orders = orders
        self._instruments = instruments
        self._handler = group.spec.rdzv_handler
        self._log = FailureLog(settings.restarts, max_restarts=group.spec.max_restarts)
        self._notices = Notices(settings.notice_timeout)
        self._phase = Phase.JOINING
        self._phase_ends: float | None = None
        self._is_told_of_changes = False
        self._join: Join | None = None
        self._joining_since = 0.0
        self._job_failures = 0
        self._started_at = 0.0
        self._after_stop: Callable[[], RunResult | None] = self._rejoin
        self._succeeded = RunResult(WorkerState.SUCCEEDED)

    def run(self) -> RunResult:
        """See `SimpleElasticAgent.run`."""
        result: RunResult | None = None
        error: BaseException | None = None
        try:
            self._handler.announce(
                role=self._spec.role,
                local_world_size=self._spec.local_world_size,
                labels=self._spec.labels,
            )
            self._is_told_of_changes = self._handler.subscribe(self._bell.ring)
            result = self._turns()
        except BaseException as e:
            error = e
            raise
        finally:
            self._clean_up(Ended(result, error))
        return result

    def _turns(self) -> RunResult:
        self._rejoin("the agent has started")
        while True:
            self._bell.clear()
            self._pass_on_news()
            result = self._step()
            if result is not None:
                return result
            self._instruments.turn(self._state())
            if not self._instruments_found_a_failure():
                self._wait()

    def _step(self) -> RunResult | None:
        """Do what there is to do; the result, once there is one."""
        while True:
            before = self._phase
            if before is Phase.JOINING:
                result = self._joining()
            elif before is Phase.STOPPING:
                result = self._stopping()
            elif before is Phase.PAUSING:
                result = self._pausing()
            else:
                result = self._carry_out(decide(self._scene()))
            if result is not None or self._phase is before:
                return result

    def _wait(self) -> None:
        times = [self._hooks._workers_wakeup(self._group), self._phase_ends, *self._instruments.wakeups()]
        if not self._is_told_of_changes and self._phase in _DECIDES:
            times.append(time.monotonic() + self._spec.monitor_interval)
        fds = [self._bell.fileno(), *self._instruments.filenos()]
        workers = self._hooks._workers_fd(self._group)
        fds += [] if workers is None else [workers]
        fds += [self._notices.fileno()] if self._phase is Phase.NOTICE else []
        wait(fds, min((t for t in times if t is not None), default=None))

    def _go(self, phase: Phase, *, seconds: float | None = None) -> None:
        """Enter a phase, which ends by itself after so many seconds (None: it does not)."""
        self._phase = phase
        self._phase_ends = None if seconds is None else time.monotonic() + seconds

    @property
    def _is_overdue(self) -> bool:
        """Whether the time for this phase is over."""
        return self._phase_ends is not None and time.monotonic() >= self._phase_ends

    def _clean_up(self, ended: Ended) -> None:
        """Whatever happened: no worker runs on, and the rendezvous is left."""
        group = self._group
        try:
            self._hooks._stop_workers(group, signal.SIGKILL, 0.0)
            while not self._hooks._workers_stopped(group):
                fd = self._hooks._workers_fd(group)
                wait([] if fd is None else [fd], self._hooks._workers_wakeup(group) or time.monotonic() + 1.0)
        finally:
            self._instruments.tell(ended)
            self._handler.shutdown()
            if self._join is not None:
                self._join.thread.join(timeout=self._settings.shutdown_timeout + 1)
            self._notices.close()
            self._instruments.close()
            self._orders.close()

    def _pass_on_news(self) -> None:
        """Hand the signals that are only news to the workers."""
        while self._orders.signals.news:
            number = self._orders.signals.news.popleft()
            if self._phase not in (Phase.RUNNING, Phase.NOTICE):
                log.warning("%s is not passed on: %s", signal_name(number), self._phase.value)
                continue
            unwilling = self._hooks._notify_workers(self._group, number)
            if unwilling:
                ranks = ", ".join(map(str, sorted(unwilling)))
                log.warning(
                    "%s is not passed on to local ranks %s: it would end them", signal_name(number), ranks
                )
            else:
                log.info("%s was passed on to the workers", signal_name(number))

    def _state(self) -> LoopState:
        group, status = self._group, self._handler.status()
        return LoopState(
            phase=self._phase,
            round=group.round,
            rank=-1 if group.group_rank is None else group.group_rank,
            world_size=group.group_world_size or 0,
            connected=status.connected,
            waiting=status.nodes_waiting,
            spares=status.spares,
            succeeded=frozenset(self._hooks._succeeded_workers(group)),
            find_stragglers=status.find_stragglers,
        )

    # -- joining ----------------------------------------------------------------------------------

    def _rejoin(self, cause: str = "the workers are stopped") -> None:
        """Wait for the next world, in a thread of its own so that the loop can go on."""
        self._go(Phase.JOINING)
        self._joining_since = time.monotonic()
        self._instruments.tell(Joining(cause))
        hostname = socket.gethostname()
        me = Member(
            node_id=self._handler.node_id,
            name=hostname,
            address=self._spec.local_addr or hostname,
            hostname=hostname,
            local_world_size=self._spec.local_world_size,
            role=self._spec.role,
        )
        self._join = Join(lambda: with_participants(self._handler.next_rendezvous(), me), self._bell.ring)

    def _joining(self) -> RunResult | None:
        if self._orders.heed():
            return self._leave()
        join = self._join
        if join is None or not join.over:
            return None
        join.thread.join()
        self._join = None
        if join.error is not None:
            return endings.without_world(join.error, self._ending_here())
        if join.info is None:
            raise AssertionError("a rendezvous that is over has a result or an error")
        self._enter(join.info)
        return None

    def _enter(self, info: RendezvousInfo) -> None:
        """Start the workers of a world."""
        group = self._group
        if self._handler.status().standing is Standing.SUPERSEDED:
            self._handler.regroup(self._handler.status().reason)
            self._rejoin("the world was superseded before its workers ran")
            return
        ranks = settle(group, info)
        self._log.begin()
        self._job_failures = info.failures
        waited = time.monotonic() - self._joining_since
        self._go(Phase.RUNNING)
        self._started_at = time.monotonic()
        try:
            self._notices.begin(info.round)
            environment = environments(
                group,
                info,
                ranks=ranks,
                shutdown_timeout=self._settings.shutdown_timeout,
                node_failures=self._log.count,
                inherited=os.environ,
            )
            for local_rank, variables in environment.items():
                variables |= self._notices.environment(local_rank)  # noqa: PLW2901 - changed in place
                variables |= self._instruments.environment(local_rank)  # noqa: PLW2901
            pids = self._hooks._start_workers(group, environment)
        except OSError as e:
            self._log.failures = failure_to_start(e, rank=group.workers[0].global_rank)
            group.state = WorkerState.FAILED
            return
        for worker in group.workers:
            worker.id = pids.get(worker.local_rank)
        group.state = WorkerState.HEALTHY
        self._handler.workers_started()
        self._instruments.tell(Entered(info, group, pids, waited))

    # -- running ----------------------------------------------------------------------------------

    def _scene(self) -> Scene:
        group = self._group
        if self._phase is Phase.BARRIER:
            self._hooks._workers_stopped(group)  # what the workers left behind is being swept up
        else:
            self._look_at_workers()
        acknowledged = self._notices.acknowledged() if self._phase is Phase.NOTICE else frozenset[int]()
        return Scene(
            phase=self._phase,
            workers=group.state,
            status=self._handler.status(),
            orders=self._orders.count,
            failures=self._job_failures,
            max_restarts=self._spec.max_restarts,
            shares_failures=self._handler.shares_failures,
            is_overdue=self._is_overdue,
            gives_notice=self._notices.are_given,
            acknowledged=bool(acknowledged),
            all_acknowledged=self._hooks._running_workers(group) <= acknowledged,
        )

    def _look_at_workers(self) -> None:
        """Take in what happened to the workers.

        The one place that does so while they run: an event that is taken in where nobody decides on it
        would be lost, and the loop would sleep on.
        """
        group = self._group
        seen = self._hooks._monitor_workers(group)
        if group.state is WorkerState.FAILED:  # it stays so until the group is started again
            return
        group.state = seen.state
        if seen.is_failed():
            self._log.failures = seen.failures
        elif seen.state is WorkerState.SUCCEEDED:
            self._succeeded = seen

    def _instruments_found_a_failure(self) -> bool:
        """Whether an instrument says that a running worker has failed; it is then taken for one that has."""
        group = self._group
        if self._phase is not Phase.RUNNING or group.state is not WorkerState.HEALTHY:
            return False
        found = self._instruments.failed_workers()
        self._log.failures = stuck(group, found) or self._log.failures
        group.state = WorkerState.FAILED if found else group.state
        return bool(found)

    def _carry_out(self, decision: Decision) -> RunResult | None:
        move, why = decision.move, decision.why
        if move is Move.LEAVE:
            self._orders.heed()
            return self._leave()
        if move is Move.END:
            self._stop_then(lambda: endings.by_status(self._handler.status(), why, self._ending_here()))
        elif move in (Move.RETRY, Move.FAIL):
            self._worker_failed(last=move is Move.FAIL)
        elif move is Move.DRAIN:
            self._handler.drain(f"received {self._orders.name}")
            self._give_notice(f"{self._orders.name}: {why}")
        elif move is Move.NOTIFY:
            self._give_notice(why)
        elif move is Move.REGROUP:
            log.info("regrouping: %s", why)
            self._instruments.tell(self._regrouping(why))
            self._log.stopped(ran=time.monotonic() - self._started_at)
            self._handler.regroup(why)
            self._stop_then(lambda: self._rejoin(why))
        elif move is Move.SUCCEED:
            self._instruments.tell(WorkersSucceeded(time.monotonic() - self._started_at))
            self._hooks._stop_workers(self._group, signal.SIGTERM, self._settings.shutdown_timeout)
            if not self._handler.report_success():
                return self._succeeded
            if (self._group.group_world_size or 0) > 1:
                log.info(
                    "the workers of this node are done; waiting for the other nodes, for %g s at most",
                    self._settings.exit_barrier_timeout,
                )
            self._go(Phase.BARRIER, seconds=self._settings.exit_barrier_timeout)
        elif move is Move.FINISH:
            log.warning(
                "the other nodes are not done after %g s (exit_barrier_timeout); this node's part is",
                self._settings.exit_barrier_timeout,
            )
            return self._succeeded
        return None

    def _regrouping(self, why: str) -> Regrouping:
        status = self._handler.status()
        return Regrouping(
            why,
            superseded=status.standing is Standing.SUPERSEDED,
            waiting=status.nodes_waiting,
            leaving=status.nodes_leaving,
        )

    def _give_notice(self, why: str) -> None:
        """Tell every worker that it will be stopped soon, and have the loop wait for what they answer."""
        seconds = self._settings.notice_timeout
        log.info("%s: workers have %g s to save and to acknowledge", why, seconds)
        self._go(Phase.NOTICE, seconds=seconds)
        ranks = [worker.local_rank for worker in self._group.workers]
        reason = f"the world is formed anew: {why}"
        self._notices.give(ranks, reason=reason, deadline=time.monotonic() + seconds)
        if self._settings.notice_signal:
            self._hooks._notify_workers(self._group, self._settings.notice_signal)

    def _worker_failed(self, *, last: bool) -> None:
        ran = time.monotonic() - self._started_at
        failure = self._log.note(self._group.round, job_failures=self._job_failures, ran=ran)
        log.error("%s", failure.message)
        self._instruments.tell(WorkerFailed(failure, is_stuck=failure.exit_code == STUCK))
        if last or (failure.final and not self._handler.shares_failures):
            self._handler.set_closed()
            self._stop_then(lambda: endings.budget_spent(failure, self._ending_here()))
            return
        self._handler.regroup(failure.message, failure)
        self._stop_then((lambda: self._rejoin(failure.message)) if failure.final else self._pause)

    def _pause(self) -> RunResult | None:
        """Wait before the next start if failures follow each other too soon. All nodes wait for this one."""
        streak = self._log.streak
        seconds = streak.pause(self._log.policy, jitter=random.random())  # noqa: S311 - guards nothing
        if not seconds:
            self._rejoin()
            return None
        log.info("%d failures in a row, each at once: the next start is in %.1f s", streak.failures, seconds)
        self._go(Phase.PAUSING, seconds=seconds)
        return None

    def _pausing(self) -> RunResult | None:
        if self._orders.heed():
            return self._leave()
        over = self._handler.status().standing in (Standing.CLOSED, Standing.EVICTED, Standing.LOST)
        if over or self._is_overdue:
            self._rejoin()  # which also finds out what it means that the job is over
        return None

    # -- stopping ---------------------------------------------------------------------------------

    def _stop_then(self, after: Callable[[], RunResult | None]) -> None:
        self._after_stop = after
        self._go(Phase.STOPPING)
        self._hooks._stop_workers(self._group, signal.SIGTERM, self._settings.shutdown_timeout)

    def _stopping(self) -> RunResult | None:
        if self._orders.heed():
            if self._after_stop == self._left:
                log.warning("told to end a second time: killing the workers now")
                self._hooks._stop_workers(self._group, signal.SIGKILL, 0.0)
            else:
                self._leave()
        if not self._hooks._workers_stopped(self._group):
            return None
        seen = self._hooks._monitor_workers(self._group)
        self._log.failures, self._log.victims = seen.failures or self._log.failures, seen.victims
        self._group.state = WorkerState.STOPPED
        ran = time.monotonic() - self._started_at
        self._instruments.tell(WorkersStopped(ran, self._log.failures, self._log.victims))
        return self._after_stop()

    def _leave(self) -> RunResult | None:
        """Tell the others first, so that they know before this node's workers are gone."""
        name = self._orders.name
        log.info("%s: stopping the workers of this node, which leaves the job", name)
        self._instruments.tell(Leaving(f"received {name}"))
        self._handler.leave(f"received {name}")
        self._stop_then(self._left)
        return None

    def _left(self) -> RunResult:
        return endings.ordered_out(self._orders)

    def _ending_here(self) -> endings.Here:
        return endings.Here(failures=self._log, round=self._group.round, succeeded=self._succeeded)
