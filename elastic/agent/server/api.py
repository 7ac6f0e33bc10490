"""The agent interface, and the one loop that every agent runs.

`SimpleElasticAgent` alternates between the rendezvous and its workers. It has one loop, which sleeps
until a worker ends, the membership changes, a signal comes or a time is up; `policy` decides what to
do then. A subclass provides the workers, by the hooks that begin with ``_start_workers``; they must
not block. The only other thread is the one in which `next_rendezvous` waits.
"""

from __future__ import annotations

import enum
import logging
import os
import random
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from elastic.multiprocessing import ProcessFailure, SignalException
from elastic.multiprocessing.signals import signal_name
from elastic.rendezvous import (
    Failure,
    Member,
    Outcome,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousInfo,
    RendezvousStateError,
    RendezvousStatus,
    Standing,
    Terminal,
)

from .environment import JobFacts, worker_environment
from .exchange import with_participants
from .failures import FailureLog
from .joining import Join
from .notices import NoticeBoard
from .policy import Decision, Move, Phase, Scene, decide
from .restarts import RestartPolicy
from .settling import settle
from .spec import RunResult, WorkerGroup, WorkerSpec, WorkerState
from .waiting import Doorbell, Orders, Signals, wait

log = logging.getLogger("elastic.agent")

DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
DEFAULT_NEWS = (signal.SIGUSR1, signal.SIGUSR2)


class ElasticAgent(ABC):
    """An agent of one worker group."""

    @abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the workers to the end of the job."""

    @abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The worker group; do not change it."""

    @abstractmethod
    def stop(self) -> None:
        """Have `run` end soon, from any thread."""


class _Stage(enum.Enum):
    """Where the loop is."""

    JOINING = "it waits for a world"
    RUNNING = "workers run"
    NOTICE = "workers were told that they will be stopped, and may save"
    STOPPING = "workers are being stopped"
    PAUSING = "workers are stopped, and it is too early to start them again"
    BARRIER = "workers are done, and the agent waits for the other nodes"


_PHASES = {_Stage.RUNNING: Phase.RUNNING, _Stage.NOTICE: Phase.NOTICE, _Stage.BARRIER: Phase.BARRIER}


class SimpleElasticAgent(ElasticAgent):
    """The loop. Durations are seconds.

    `exit_barrier_timeout` is how long an agent whose workers have succeeded waits for the other
    nodes; the wait ends at once when they are done or gone. `shutdown_timeout` is how long workers may
    take to end after they are told to. `signals_to_handle` are the signals that make this node leave;
    `signals_to_pass_on` are news for its workers, and change nothing here. `notice_timeout` is how long
    workers may take to acknowledge that they will be stopped for a newcomer (0: they are not told), and
    `notice_signal` is sent to them with the notice (0: none). `restarts` says how soon they are started
    again after a failure. ValueError for a negative `notice_timeout`.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        exit_barrier_timeout: float = 300,
        shutdown_timeout: float = 30,
        *,
        signals_to_handle: Iterable[int] = DEFAULT_SIGNALS,
        signals_to_pass_on: Iterable[int] = DEFAULT_NEWS,
        notice_timeout: float = 0,
        notice_signal: int = 0,
        restarts: RestartPolicy | None = None,
    ) -> None:
        if notice_timeout < 0:
            raise ValueError(f"notice_timeout is {notice_timeout}: it must not be negative")
        self._worker_group = WorkerGroup(spec)
        self._exit_barrier_timeout = exit_barrier_timeout
        self._shutdown_timeout = shutdown_timeout
        self._signals_to_handle = tuple(signals_to_handle)
        self._signals_to_pass_on = tuple(signals_to_pass_on)
        self._notice_timeout = notice_timeout
        self._notice_signal = notice_signal
        self._log = FailureLog(restarts or RestartPolicy(), max_restarts=spec.max_restarts)
        self._handler = spec.rdzv_handler
        self._bell = Doorbell()
        self._orders = Orders(self._bell)
        self._stage = _Stage.JOINING
        self._told_of_changes = False
        self._join: Join | None = None
        self._job_failures = 0
        self._started_at = 0.0
        self._after_stop: Callable[[], RunResult | None] = self._rejoin
        self._board: NoticeBoard | None = None
        self._notice_until = 0.0
        self._pause_until = 0.0
        self._barrier_until = 0.0
        self._succeeded = RunResult(WorkerState.SUCCEEDED)

    def get_worker_group(self, role: str = "default") -> WorkerGroup:  # noqa: ARG002 - it has one
        return self._worker_group

    def stop(self) -> None:
        """Have this node leave as if it got a signal: the one call that another thread may make.

        It returns at once, and `run` returns a result in state STOPPED when the workers have ended. Called
        again it kills them. Before `run` it makes that end at once, and afterwards it does nothing.
        """
        self._orders.stop()

    # -- what a kind of agent provides ------------------------------------------------------------

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

    # -- the loop ---------------------------------------------------------------------------------

    def run(self, role: str = "default") -> RunResult:  # noqa: ARG002 - it has one
        """Run to the end of the job, or of this node's part in it.

        Returns how the workers ended. Not in the main thread it handles no signals: end it by `stop`. Raises
        SignalException when a signal made this node leave, and a
        RendezvousError when there is no world for it. Afterwards no worker runs and the rendezvous is
        left. An agent runs once.
        """
        spec = self._worker_group.spec
        self._handler.announce(role=spec.role, local_world_size=spec.local_world_size)
        self._told_of_changes = self._handler.subscribe(self._bell.ring)
        passing = self._signals_to_pass_on
        with Signals(self._signals_to_handle, self._bell, passing=passing) as self._orders.signals:
            try:
                return self._loop()
            finally:
                self._clean_up()

    def _loop(self) -> RunResult:
        self._rejoin()
        while True:
            self._bell.clear()
            self._pass_on_news()
            result = self._step()
            if result is not None:
                return result
            self._wait()

    def _wait(self) -> None:
        stage = self._stage
        times = [self._workers_wakeup(self._worker_group)]
        if stage is _Stage.BARRIER:
            times.append(self._barrier_until)
        elif stage is _Stage.NOTICE:
            times.append(self._notice_until)
        elif stage is _Stage.PAUSING:
            times.append(self._pause_until)
        if not self._told_of_changes and stage in _PHASES:
            times.append(time.monotonic() + self._worker_group.spec.monitor_interval)
        workers = self._workers_fd(self._worker_group)
        board = self._board.fileno() if self._board is not None and stage is _Stage.NOTICE else None
        fds = [self._bell.fileno(), *(fd for fd in (workers, board) if fd is not None)]
        wait(fds, min((t for t in times if t is not None), default=None))

    def _step(self) -> RunResult | None:
        """Do what there is to do; the result, once there is one."""
        while True:
            before = self._stage
            if before is _Stage.JOINING:
                result = self._joining()
            elif before is _Stage.STOPPING:
                result = self._stopping()
            elif before is _Stage.PAUSING:
                result = self._pausing()
            else:
                result = self._carry_out(decide(self._scene()))
            if result is not None or self._stage is before:
                return result

    def _clean_up(self) -> None:
        """Whatever happened: no worker runs on, and the rendezvous is left."""
        group = self._worker_group
        try:
            self._stop_workers(group, signal.SIGKILL, 0.0)
            while not self._workers_stopped(group):
                fd = self._workers_fd(group)
                wait([] if fd is None else [fd], self._workers_wakeup(group) or time.monotonic() + 1.0)
        finally:
            self._handler.shutdown()
            if self._join is not None:
                self._join.thread.join(timeout=self._shutdown_timeout + 1)
            if self._board is not None:
                self._board.close()
            self._orders.close()

    def _pass_on_news(self) -> None:
        """Hand the signals that are only news to the workers."""
        while self._orders.signals.news:
            number = self._orders.signals.news.popleft()
            if self._stage not in (_Stage.RUNNING, _Stage.NOTICE):
                log.warning("%s is not passed on: %s", signal_name(number), self._stage.value)
                continue
            unwilling = self._notify_workers(self._worker_group, number)
            if unwilling:
                ranks = ", ".join(map(str, sorted(unwilling)))
                log.warning(
                    "%s is not passed on to local ranks %s: it would end them", signal_name(number), ranks
                )
            else:
                log.info("%s was passed on to the workers", signal_name(number))

    # -- joining ----------------------------------------------------------------------------------

    def _rejoin(self) -> None:
        """Wait for the next world, in a thread of its own so that the loop can go on."""
        self._stage = _Stage.JOINING
        spec = self._worker_group.spec
        hostname = socket.gethostname()
        me = Member(
            node_id=self._handler.node_id,
            name=hostname,
            address=spec.local_addr or hostname,
            hostname=hostname,
            local_world_size=spec.local_world_size,
            role=spec.role,
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
            return self._no_world(join.error)
        if join.info is None:
            raise AssertionError("a rendezvous that is over has a result or an error")
        self._enter(join.info)
        return None

    def _no_world(self, error: BaseException) -> RunResult:
        if isinstance(error, RendezvousGracefulExitError):
            log.info("%s", error)
            return RunResult(WorkerState.SUCCEEDED, reason=str(error))
        if isinstance(error, RendezvousClosedError) and error.terminal is not None:
            log.info("%s", error)
            return self._ending(error.terminal)
        raise error

    def _enter(self, info: RendezvousInfo) -> None:
        """Start the workers of a world."""
        group, spec = self._worker_group, self._worker_group.spec
        if self._handler.status().standing is Standing.SUPERSEDED:
            self._handler.regroup(self._handler.status().reason)
            self._rejoin()
            return
        ranks = settle(group, info)
        self._log.begin()
        self._job_failures = info.failures
        facts = JobFacts(
            run_id=self._handler.get_run_id(),
            round=info.round,
            node_id=self._handler.node_id,
            node_rank=info.rank,
            node_count=info.world_size,
            local_world_size=spec.local_world_size,
            role=spec.role,
            master_addr=group.master_addr or "",
            master_port=group.master_port or 0,
            failures=info.failures,
            max_restarts=spec.max_restarts,
            uses_agent_store=self._handler.use_agent_store,
            shutdown_timeout=self._shutdown_timeout,
            node_failures=self._log.count,
        )
        environments = {r.local_rank: worker_environment(facts, r, os.environ) for r in ranks}
        self._stage = _Stage.RUNNING
        self._started_at = time.monotonic()
        try:
            if self._notice_timeout:
                board = self._board = self._board or NoticeBoard()
                board.begin(info.round)
                environments = {i: env | board.environment(i) for i, env in environments.items()}
            pids = self._start_workers(group, environments)
        except OSError as e:
            self._failed_to_start(e)
            return
        for worker in group.workers:
            worker.id = pids.get(worker.local_rank)
        group.state = WorkerState.HEALTHY
        self._handler.workers_started()

    def _failed_to_start(self, error: OSError) -> None:
        """A worker that cannot be started is one that failed, with the code that a shell would give it."""
        code = 127 if isinstance(error, FileNotFoundError) else 126
        worker = self._worker_group.workers[0]
        message = f"the workers cannot be started: {error}"
        self._log.failures = {
            worker.global_rank: ProcessFailure(local_rank=0, pid=0, exitcode=code, message=message)
        }
        self._worker_group.state = WorkerState.FAILED

    # -- running ----------------------------------------------------------------------------------

    def _scene(self) -> Scene:
        group = self._worker_group
        if self._stage is _Stage.BARRIER:
            self._workers_stopped(group)  # what the workers left behind is being swept up
        else:
            self._look_at_workers()
        acknowledged: frozenset[int] = frozenset()
        if self._stage is _Stage.NOTICE and self._board is not None:
            acknowledged = self._board.acknowledged()
        return Scene(
            phase=_PHASES[self._stage],
            workers=group.state,
            status=self._handler.status(),
            ordered_out=self._orders.count > 0,
            failures=self._job_failures,
            max_restarts=group.spec.max_restarts,
            shares_failures=self._handler.shares_failures,
            waited_enough=time.monotonic() >= self._barrier_until,
            gives_notice=self._board is not None,
            acknowledged=bool(acknowledged),
            ready_to_stop=self._running_workers(group) <= acknowledged
            or time.monotonic() >= self._notice_until,
        )

    def _look_at_workers(self) -> None:
        """Take in what happened to the workers.

        The one place that does so while they run: an event that is taken in where nobody decides on it
        would be lost, and the loop would sleep on.
        """
        group = self._worker_group
        seen = self._monitor_workers(group)
        if group.state is WorkerState.FAILED:  # it stays so until the group is started again
            return
        group.state = seen.state
        if seen.is_failed():
            self._log.failures = seen.failures
        elif seen.state is WorkerState.SUCCEEDED:
            self._succeeded = seen

    def _carry_out(self, decision: Decision) -> RunResult | None:
        move, why = decision.move, decision.why
        if move is Move.LEAVE:
            self._orders.heed()
            return self._leave()
        if move is Move.END:
            self._stop_then(lambda: self._ended(self._handler.status(), why))
        elif move in (Move.RETRY, Move.FAIL):
            return self._worker_failed(last=move is Move.FAIL)
        elif move is Move.NOTIFY:
            self._give_notice(why)
        elif move is Move.REGROUP:
            log.info("regrouping: %s", why)
            self._log.stopped(ran=time.monotonic() - self._started_at)
            self._handler.regroup(why)
            self._stop_then(self._rejoin)
        elif move is Move.SUCCEED:
            self._stop_workers(self._worker_group, signal.SIGTERM, self._shutdown_timeout)
            if not self._handler.report_success():
                return self._succeeded
            self._barrier_until = time.monotonic() + self._exit_barrier_timeout
            self._stage = _Stage.BARRIER
        elif move is Move.FINISH:
            log.warning(
                "the other nodes are not done after %g s (exit_barrier_timeout); this node's part is",
                self._exit_barrier_timeout,
            )
            return self._succeeded
        return None

    def _give_notice(self, why: str) -> None:
        """Tell every worker that it will be stopped soon, and have the loop wait for what they answer."""
        if self._board is None:
            raise AssertionError("only an agent with a board gives notice")
        log.info("%s: workers have %g s to save and to acknowledge", why, self._notice_timeout)
        self._stage = _Stage.NOTICE
        self._notice_until = time.monotonic() + self._notice_timeout
        ranks = [worker.local_rank for worker in self._worker_group.workers]
        self._board.post(ranks, reason=f"the world is formed anew: {why}", deadline=self._notice_until)
        if self._notice_signal:
            self._notify_workers(self._worker_group, self._notice_signal)

    def _worker_failed(self, *, last: bool) -> RunResult | None:
        ran = time.monotonic() - self._started_at
        failure = self._log.note(self._worker_group.round, job_failures=self._job_failures, ran=ran)
        log.error("%s", failure.message)
        if last or (failure.final and not self._handler.shares_failures):
            self._handler.set_closed()
            self._stop_then(lambda: self._budget_spent(failure))
        else:
            self._handler.regroup(failure.message, failure)
            self._stop_then(self._rejoin if failure.final else self._pause)
        return None

    def _pause(self) -> RunResult | None:
        """Wait before the next start if failures follow each other too soon. All nodes wait for this one."""
        streak = self._log.streak
        seconds = streak.pause(self._log.policy, jitter=random.random())  # noqa: S311 - guards nothing
        if not seconds:
            self._rejoin()
            return None
        log.info("%d failures in a row, each at once: the next start is in %.1f s", streak.failures, seconds)
        self._pause_until = time.monotonic() + seconds
        self._stage = _Stage.PAUSING
        return None

    def _pausing(self) -> RunResult | None:
        if self._orders.heed():
            return self._leave()
        over = self._handler.status().standing in (Standing.CLOSED, Standing.EVICTED, Standing.LOST)
        if over or time.monotonic() >= self._pause_until:
            self._rejoin()  # which also finds out what it means that the job is over
        return None

    # -- stopping ---------------------------------------------------------------------------------

    def _stop_then(self, after: Callable[[], RunResult | None]) -> None:
        self._after_stop = after
        self._stage = _Stage.STOPPING
        self._stop_workers(self._worker_group, signal.SIGTERM, self._shutdown_timeout)

    def _stopping(self) -> RunResult | None:
        if self._orders.heed():
            if self._after_stop == self._left:
                log.warning("told to end a second time: killing the workers now")
                self._stop_workers(self._worker_group, signal.SIGKILL, 0.0)
            else:
                self._leave()
        if not self._workers_stopped(self._worker_group):
            return None
        seen = self._monitor_workers(self._worker_group)
        self._log.failures, self._log.victims = seen.failures or self._log.failures, seen.victims
        self._worker_group.state = WorkerState.STOPPED
        return self._after_stop()

    def _leave(self) -> RunResult | None:
        """Tell the others first, so that they know before this node's workers are gone."""
        name = self._orders.name
        log.info("%s: leaving; the job goes on without this node", name)
        self._handler.leave(f"received {name}")
        self._stop_then(self._left)
        return None

    # -- endings ----------------------------------------------------------------------------------

    def _left(self) -> RunResult | None:
        received = self._orders.signals.received
        if not received:
            return RunResult(WorkerState.STOPPED, reason="stop() was called")
        number = received[0]
        raise SignalException(f"received {signal_name(number)}", sigval=signal.Signals(number))

    def _ended(self, status: RendezvousStatus, why: str) -> RunResult | None:
        if status.terminal is not None:
            return self._ending(status.terminal)
        if status.standing is Standing.LOST:
            raise RendezvousConnectionError(f"this node gave up: {why}")
        raise RendezvousStateError(f"this node may take no further part: {why}")

    def _budget_spent(self, failure: Failure) -> RunResult | None:
        return RunResult(
            WorkerState.FAILED,
            failures=self._log.failures,
            victims=self._log.victims,
            exit_code=failure.exit_code,
            reason=failure.message,
        )

    def _ending(self, terminal: Terminal) -> RunResult:
        """The result that the job's terminal record means for this node."""
        if terminal.outcome is Outcome.SUCCEEDED:
            return self._succeeded
        return self._log.ending(terminal, round_number=self._worker_group.round)
