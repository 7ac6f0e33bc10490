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
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from elastic.multiprocessing import ProcessFailure, SignalException, exit_code_for
from elastic.multiprocessing.errors.failures import sort_by_cause
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
from .policy import Decision, Move, Phase, Scene, decide
from .ranks import worker_ranks
from .spec import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from .waiting import Doorbell, Signals, wait

log = logging.getLogger("elastic.agent")

DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class ElasticAgent(ABC):
    """An agent of one worker group."""

    @abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Run the workers to the end of the job."""

    @abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The worker group; do not change it."""


class _Stage(enum.Enum):
    """Where the loop is."""

    JOINING = "it waits for a world"
    RUNNING = "workers run"
    STOPPING = "workers are being stopped"
    BARRIER = "workers are done, and the agent waits for the other nodes"


class SimpleElasticAgent(ElasticAgent):
    """The loop. Durations are seconds.

    `exit_barrier_timeout` is how long an agent whose workers have succeeded waits for the other
    nodes; the wait ends at once when they are done or gone. `shutdown_timeout` is how long workers may
    take to end after they are told to. `signals_to_handle` are the signals that make this node leave.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        exit_barrier_timeout: float = 300,
        shutdown_timeout: float = 30,
        *,
        signals_to_handle: Iterable[int] = DEFAULT_SIGNALS,
    ) -> None:
        self._worker_group = WorkerGroup(spec)
        self._exit_barrier_timeout = exit_barrier_timeout
        self._shutdown_timeout = shutdown_timeout
        self._signals_to_handle = tuple(signals_to_handle)
        self._handler = spec.rdzv_handler
        self._bell = Doorbell()
        self._signals = Signals((), self._bell)
        self._stage = _Stage.JOINING
        self._told_of_changes = False
        self._join: _Join | None = None
        self._job_failures = 0
        self._failures: dict[int, ProcessFailure] = {}
        self._after_stop: Callable[[], RunResult | None] = self._rejoin
        self._signals_heeded = 0
        self._barrier_until = 0.0
        self._succeeded = RunResult(WorkerState.SUCCEEDED)

    def get_worker_group(self, role: str = "default") -> WorkerGroup:  # noqa: ARG002 - it has one
        return self._worker_group

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

    # -- the loop ---------------------------------------------------------------------------------

    def run(self, role: str = "default") -> RunResult:  # noqa: ARG002 - it has one
        """Run to the end of the job, or of this node's part in it.

        Returns how the workers ended. Raises SignalException when a signal made this node leave, and a
        RendezvousError when there is no world for it. Afterwards no worker runs and the rendezvous is
        left. An agent runs once.
        """
        spec = self._worker_group.spec
        self._handler.announce(role=spec.role, local_world_size=spec.local_world_size)
        self._told_of_changes = self._handler.subscribe(self._bell.ring)
        with Signals(self._signals_to_handle, self._bell) as self._signals:
            try:
                return self._loop()
            finally:
                self._clean_up()

    def _loop(self) -> RunResult:
        self._rejoin()
        while True:
            self._bell.clear()
            result = self._step()
            if result is not None:
                return result
            self._wait()

    def _wait(self) -> None:
        workers = self._workers_fd(self._worker_group)
        times = [self._workers_wakeup(self._worker_group)]
        if self._stage is _Stage.BARRIER:
            times.append(self._barrier_until)
        if not self._told_of_changes and self._stage in (_Stage.RUNNING, _Stage.BARRIER):
            times.append(time.monotonic() + self._worker_group.spec.monitor_interval)
        fds = [self._bell.fileno(), *([] if workers is None else [workers])]
        wait(fds, min((t for t in times if t is not None), default=None))

    def _step(self) -> RunResult | None:
        """Do what there is to do; the result, once there is one."""
        while True:
            before = self._stage
            if before is _Stage.JOINING:
                result = self._joining()
            elif before is _Stage.STOPPING:
                result = self._stopping()
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
            self._bell.close()

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
        self._join = _Join(lambda: with_participants(self._handler.next_rendezvous(), me), self._bell.ring)

    def _joining(self) -> RunResult | None:
        if self._new_signal():
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
            return self._ending(error.terminal)
        raise error

    def _enter(self, info: RendezvousInfo) -> None:
        """Start the workers of a world."""
        group, spec = self._worker_group, self._worker_group.spec
        if self._handler.status().standing is Standing.SUPERSEDED:
            self._handler.regroup(self._handler.status().reason)
            self._rejoin()
            return
        ranks = worker_ranks(info.participants, info.rank)
        bootstrap = info.bootstrap_store_info
        group.store, group.round = info.store, info.round
        group.group_rank, group.group_world_size = info.rank, info.world_size
        group.master_addr = spec.master_addr or bootstrap.master_addr
        group.master_port = spec.master_port or bootstrap.master_port
        group.workers = [
            Worker(
                local_rank=r.local_rank,
                global_rank=r.rank,
                role_rank=r.role_rank,
                world_size=r.world_size,
                role_world_size=r.role_world_size,
            )
            for r in ranks
        ]
        self._job_failures = info.failures
        facts = JobFacts(
            run_id=self._handler.get_run_id(),
            round=info.round,
            node_id=self._handler.node_id,
            node_rank=info.rank,
            node_count=info.world_size,
            local_world_size=spec.local_world_size,
            role=spec.role,
            master_addr=group.master_addr,
            master_port=group.master_port,
            failures=info.failures,
            max_restarts=spec.max_restarts,
            uses_agent_store=self._handler.use_agent_store,
            shutdown_timeout=self._shutdown_timeout,
        )
        log.info(
            "round %d: node %d of %d (%s), workers %d-%d of %d, master %s:%d",
            info.round,
            info.rank,
            info.world_size,
            " ".join(member.name for member in info.participants),
            ranks[0].rank,
            ranks[-1].rank,
            ranks[0].world_size,
            group.master_addr,
            group.master_port,
        )
        environments = {r.local_rank: worker_environment(facts, r, os.environ) for r in ranks}
        self._stage = _Stage.RUNNING
        try:
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
        self._failures = {
            worker.global_rank: ProcessFailure(local_rank=0, pid=0, exitcode=code, message=message)
        }
        self._worker_group.state = WorkerState.FAILED

    # -- running ----------------------------------------------------------------------------------

    def _scene(self) -> Scene:
        group = self._worker_group
        if self._stage is _Stage.BARRIER:
            self._workers_stopped(group)  # what the workers left behind is being swept up
        elif group.state is not WorkerState.FAILED:
            seen = self._monitor_workers(group)
            group.state = seen.state
            if seen.is_failed():
                self._failures = seen.failures
            elif seen.state is WorkerState.SUCCEEDED:
                self._succeeded = seen
        return Scene(
            phase=Phase.RUNNING if self._stage is _Stage.RUNNING else Phase.BARRIER,
            workers=group.state,
            status=self._handler.status(),
            signal=self._signals.received[0] if self._signals.received else 0,
            failures=self._job_failures,
            max_restarts=group.spec.max_restarts,
            shares_failures=self._handler.shares_failures,
            waited_enough=time.monotonic() >= self._barrier_until,
        )

    def _carry_out(self, decision: Decision) -> RunResult | None:
        move, why = decision.move, decision.why
        if move is Move.LEAVE:
            self._new_signal()
            return self._leave()
        if move is Move.END:
            self._stop_then(lambda: self._ended(self._handler.status(), why))
        elif move in (Move.RETRY, Move.FAIL):
            return self._worker_failed(last=move is Move.FAIL)
        elif move is Move.REGROUP:
            log.info("regrouping: %s", why)
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

    def _worker_failed(self, *, last: bool) -> RunResult | None:
        failure = self._first_failure()
        log.error("%s", failure.message)
        if last:
            self._handler.set_closed()
            self._stop_then(lambda: self._budget_spent(failure))
        else:
            self._handler.regroup(failure.message, failure)
            self._stop_then(self._rejoin)
        return None

    def _first_failure(self) -> Failure:
        """The failure that came first on this node, in the words that the other nodes will read."""
        group = self._worker_group
        rank, process = sort_by_cause(self._failures)[0]
        how = f"exit code {process.exitcode}"
        if process.exitcode < 0:
            how = f"signal {-process.exitcode} ({process.signal_name()})"
        spent = self._job_failures >= group.spec.max_restarts
        message = (
            f"worker {rank} (local rank {process.local_rank} on {socket.gethostname()}) failed with {how}"
            if process.pid
            else process.message
        )
        if spent:
            message += f"; --max-restarts={group.spec.max_restarts} allows no further restart"
        return Failure(
            round=group.round,
            rank=max(rank, 0),
            local_rank=process.local_rank,
            exit_code=exit_code_for(process),
            message=message,
            final=spent,
        )

    # -- stopping ---------------------------------------------------------------------------------

    def _stop_then(self, after: Callable[[], RunResult | None]) -> None:
        self._after_stop = after
        self._stage = _Stage.STOPPING
        self._stop_workers(self._worker_group, signal.SIGTERM, self._shutdown_timeout)

    def _stopping(self) -> RunResult | None:
        if self._new_signal():
            if self._after_stop == self._left:
                log.warning("a second signal: killing the workers now")
                self._stop_workers(self._worker_group, signal.SIGKILL, 0.0)
            else:
                self._leave()
        if not self._workers_stopped(self._worker_group):
            return None
        self._worker_group.state = WorkerState.STOPPED
        return self._after_stop()

    def _new_signal(self) -> bool:
        """Whether a signal came that was not heeded yet."""
        heeded, self._signals_heeded = self._signals_heeded, len(self._signals.received)
        return self._signals_heeded > heeded

    def _leave(self) -> RunResult | None:
        """Tell the others first, so that they know before this node's workers are gone."""
        name = signal_name(self._signals.received[0])
        log.info("%s: leaving; the job goes on without this node", name)
        self._handler.leave(f"received {name}")
        self._stop_then(self._left)
        return None

    # -- endings ----------------------------------------------------------------------------------

    def _left(self) -> RunResult | None:
        number = self._signals.received[0]
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
            failures=self._failures,
            exit_code=failure.exit_code,
            reason=failure.message,
        )

    def _ending(self, terminal: Terminal) -> RunResult:
        """The result that the job's terminal record means for this node."""
        if terminal.outcome is Outcome.SUCCEEDED:
            return self._succeeded
        ours = terminal.failure is not None and terminal.failure.rank in self._failures
        return RunResult(
            WorkerState.FAILED,
            failures=self._failures if ours else {},
            exit_code=terminal.exit_code or 1,
            reason=f"the job has ended: {terminal.reason}",
        )


class _Join:
    """One call of `next_rendezvous` in a thread. `over` once there is `info` or `error`."""

    def __init__(self, call: Callable[[], RendezvousInfo], ring: Callable[[], None]) -> None:
        self.info: RendezvousInfo | None = None
        self.error: BaseException | None = None
        self.over = False
        self._call = call
        self._ring = ring
        self.thread = threading.Thread(target=self._run, name="elastic-join", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.info = self._call()
        except BaseException as e:
            self.error = e
        self.over = True
        self._ring()
