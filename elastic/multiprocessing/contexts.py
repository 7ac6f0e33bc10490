"""A group of workers from start to end, for one loop that must never block, and for callers that may.

An agent's loop waits on :meth:`PContext.fileno` with :meth:`PContext.next_wakeup` as its timeout, calls
:meth:`PContext.poll` to learn what happened, and :meth:`PContext.stop` and :meth:`PContext.advance` to end
the group. :meth:`PContext.wait` and :meth:`PContext.close` are the same for a caller with nothing else to do.

A context decides nothing about a failure; its one policy is that nothing of the group is left behind, not
even if this process is killed (:mod:`elastic.utils.tether`). One thread at a time may use it.
"""

import logging
import os
import select
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elastic.multiprocessing.affinity import NumaOptions
from elastic.multiprocessing.binding import plan_bindings
from elastic.multiprocessing.errors import ProcessFailure
from elastic.multiprocessing.errors.error_file import ERROR_FILE_VARIABLE
from elastic.multiprocessing.errors.failures import FAILURE_CODE
from elastic.multiprocessing.logs import LogsSpecs
from elastic.multiprocessing.notify import notify
from elastic.multiprocessing.output import Output
from elastic.multiprocessing.results import Outcomes, RunProcsResult
from elastic.multiprocessing.stack_signal import STACKS_FILE_VARIABLE
from elastic.multiprocessing.stacks import StackDump, remove_empty, stack_files
from elastic.multiprocessing.subreaper import collect_orphans
from elastic.multiprocessing.tether_watch import TetherWatch
from elastic.multiprocessing.workers import Command, StartedWorker, Worker, require_kernel_support
from elastic.utils.ending import Ending
from elastic.utils.processes import Process
from elastic.utils.tether import Tether, find_members

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 2.0
"""How long the report of an exit waits for the last output, and teardown for a blocked console."""


class PContext(ABC):
    """A homogeneous group of worker processes.

    Args:
        name: What the group is called in reports and in the default line prefix.
        entrypoint: What each worker runs.
        args: The arguments of each local rank.
        envs: The environment of each local rank, on top of this process's own.
        logs_specs: Decides where output goes; asked once, now.
        log_line_prefixes: What each line on the console begins with, by local rank; by default
            ``[<name><local_rank>]:``.
        duplicate_stdout_filters: Teed lines that contain one of these also go to one file for all ranks.
        duplicate_stderr_filters: The same for stderr.
        numa_options: Which CPUs to bind workers to, before they run; by default none.
        dump_stacks: Whether workers are asked for the stacks of their threads before they are asked to end,
            which takes up to half a second, or some seconds more with ``py-spy``.
    """

    def __init__(
        self,
        name: str,
        entrypoint: "str | Callable[..., Any]",
        args: Mapping[int, Sequence[Any]],
        envs: Mapping[int, Mapping[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: Mapping[int, str] | None = None,
        *,
        duplicate_stdout_filters: Sequence[str] | None = None,
        duplicate_stderr_filters: Sequence[str] | None = None,
        numa_options: NumaOptions | None = None,
        dump_stacks: bool = False,
    ) -> None:
        self.name = name
        self.entrypoint = entrypoint
        self.args = dict(args)
        self.envs = {rank: dict(env) for rank, env in envs.items()}
        self.nprocs = len(self.envs)
        self._logs_specs = logs_specs
        logs = logs_specs.reify(self.envs)
        self.stdouts = logs.stdouts
        self.stderrs = logs.stderrs
        self.error_files = logs.error_files
        self.is_started = False
        self._output = Output(
            logs,
            prefixes={rank: f"[{name}{rank}]:" for rank in self.envs} | dict(log_line_prefixes or {}),
            stdout_filters=tuple(duplicate_stdout_filters or ()),
            stderr_filters=tuple(duplicate_stderr_filters or ()),
        )
        self._numa_options = numa_options
        self._stack_files = stack_files(self.error_files) if dump_stacks else {}
        self._bindings: dict[int, frozenset[int]] = {}
        self._workers: dict[int, Worker] = {}
        self._by_pidfd: dict[int, Worker] = {}
        self._tether: Tether | None = None
        self._tether_watch: TetherWatch | None = None
        self._epoll: select.epoll | None = None
        self._stopping: Ending | None = None
        self._finish_by: float | None = None
        self._is_stopped = False
        self._outcomes = Outcomes(self.nprocs)
        self._stopped_ranks: set[int] = set()
        self.survivors: list[Process] = []
        """Processes that could not be killed, once :attr:`stopped`. They were left alone."""

    # -- what a kind of worker provides ------------------------------------------------------------

    @abstractmethod
    def _command(self, local_rank: int) -> Command:
        """Return what to execute for a worker."""

    def _return_value(self, local_rank: int) -> Any:  # noqa: ARG002 - a command returns nothing
        """Return what a worker that ended with exit code 0 returned.

        Raises:
            ValueError: It can't be read; the text says why.
        """
        return None

    def _launch(self, tether: Tether, epoll: select.epoll) -> None:
        """Start the workers. A kind whose workers are born later gives them to :meth:`_add` then.

        Raises:
            OSError: One can't be started.
        """
        for rank in sorted(self.envs):
            self._start_worker(rank, tether, epoll)

    def _look_for_births(self, tether: Tether, epoll: select.epoll) -> None:  # noqa: B027 - most are born at once
        """Give workers that have been born meanwhile to :meth:`_add`. Called on events of nobody else."""

    def _release(self) -> None:  # noqa: B027 - a kind of worker need not hold anything
        """Close what :meth:`_command` opened. Called once, when the group is over."""

    # -- start -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all workers, or none: if one can't be started, those before it are killed.

        Signals that are blocked in the calling thread stay blocked in the workers. They inherit stdin.

        Raises:
            RuntimeError: It was started before, or this system lacks something that is needed.
            OSError: A worker can't be started.
        """
        if self.is_started:
            raise RuntimeError(f"the workers of {self.name!r} were started before: make another context")
        require_kernel_support()
        self.is_started = True
        self._bindings = plan_bindings(self._numa_options, self.envs, os.environ)
        self._epoll = select.epoll()
        try:
            self._tether = Tether.start()
            self._tether_watch = TetherWatch(self._tether, self._epoll)
            self._launch(self._tether, self._epoll)
            self._output.start()
            progress = self._output.fileno()
            if progress is not None:
                self._epoll.register(progress, select.EPOLLIN)
        except BaseException:
            self.close(signal.SIGKILL, timeout=0)
            raise

    def _start_worker(self, rank: int, tether: Tether, epoll: select.epoll) -> None:
        environment = {**os.environ, **self._own_environment(rank), **tether.environment}
        with self._output.targets(rank) as (stdout, stderr):
            worker = StartedWorker(
                rank,
                self._command(rank),
                environment=environment,
                stdout=stdout,
                stderr=stderr,
                cpus=self._bindings.get(rank, ()),
            )
        self._add(worker, tether, epoll)

    def _own_environment(self, rank: int) -> dict[str, str]:
        """What a worker's environment has on top of this process's own."""
        # Set even if empty: the files of a launcher further out aren't this worker's to write.
        return {
            **self.envs[rank],
            ERROR_FILE_VARIABLE: self.error_files.get(rank, ""),
            STACKS_FILE_VARIABLE: self._stack_files.get(rank, ""),
        }

    def _add(self, worker: Worker, tether: Tether, epoll: select.epoll) -> None:
        """Take a worker that runs, or that ended before it began."""
        self._workers[worker.local_rank] = worker
        if worker.exitcode is not None:
            self._note_end(worker)
            return
        self._by_pidfd[worker.pidfd] = worker
        epoll.register(worker.pidfd, select.EPOLLIN)
        tether.hold(worker.pid)

    # -- the non-blocking interface ----------------------------------------------------------------

    def pids(self) -> dict[int, int]:
        """Return the process id of each worker, by local rank; a forked one has none at first."""
        self.advance()
        return {rank: worker.pid for rank, worker in self._workers.items()}

    def running(self) -> set[int]:
        """Return the local ranks of the workers that have not ended."""
        return self.envs.keys() - {
            rank for rank, worker in self._workers.items() if worker.exitcode is not None
        }

    def succeeded(self) -> set[int]:
        """Return the local ranks of the workers that have ended well."""
        return self._outcomes.succeeded

    def notify(self, number: int) -> set[int]:
        """Send a signal that is only news to each running worker that catches it; it stops nobody.

        Only the worker itself gets it, not what it started. One that doesn't catch the signal would die of
        it, as every process does that is still starting, so it is left out.

        Returns:
            The local ranks that were left out.
        """
        running = self.running()
        if self._is_stopped or self._stopping is not None:
            return running
        told = {rank for rank, worker in self._workers.items() if notify(worker.pid, worker.pidfd, number)}
        return running - told

    def fileno(self) -> int:
        """A descriptor that is readable when something happened: call :meth:`poll` or :meth:`advance`.

        Steps that are due at a time don't show here: wait no longer than until :meth:`next_wakeup`.

        Raises:
            RuntimeError: The group isn't started, or is over.
        """
        if self._epoll is None:
            raise RuntimeError(f"the workers of {self.name!r} don't run: there is nothing to wait for")
        return self._epoll.fileno()

    def next_wakeup(self) -> float | None:
        """When to call :meth:`advance` even if nothing happens, in monotonic seconds; None: never."""
        due = [at + DRAIN_SECONDS for at in self._outcomes.unsettled.values()]
        if self._finish_by is not None:
            due.append(0.0 if self._output.is_done else self._finish_by)
        elif self._stopping is not None and self._stopping.next_wakeup is not None:
            due.append(self._stopping.next_wakeup)
        return None if self._is_stopped else min(due, default=None)

    def poll(self) -> RunProcsResult | None:
        """Return what became of the group, or None while all workers run or have ended well.

        The first failure makes a result; the other workers run on, and what becomes of them shows in
        later results. After :meth:`stop` without a failure, the result comes when all have ended, or when
        the group is :attr:`stopped`: a worker that could not be killed is in none of its parts.
        """
        self.advance()
        if not self.is_started:
            return None
        return self._outcomes.result(
            stdouts=self.stdouts,
            stderrs=self.stderrs,
            is_stopped=bool(self._stopped_ranks),
            is_over=self._is_stopped,
        )

    def stop(self, death_sig: int = signal.SIGTERM, timeout: float = 30.0) -> None:
        """Begin to end the group; :meth:`advance` does the rest. It also sweeps a group that has ended.

        Every process of every worker gets the signal now, or once stacks are written where that was wished
        for, and is killed after ``timeout`` seconds. A worker that ends badly from now on is a victim, no
        failure. Called again with a shorter timeout it hurries; it never gives more time than before.
        """
        if self._is_stopped:
            return
        if self._epoll is None or self._tether is None:  # never started, or not far
            if self._epoll is not None:
                self._epoll.close()
                self._epoll = None
            self._release_all()
            return
        now = time.monotonic()
        if self._stopping is not None:
            self._stopping.hurry(death_sig, timeout, now)
            return
        self._take_events()  # who has failed by now has failed by itself
        self._stopped_ranks = self.running()
        tether, dump = self._tether, None

        def find() -> list[Process]:
            return find_members(tether.holds, tether.id, since=tether.since, excluding=(tether.pid,))

        if self._stack_files and death_sig != signal.SIGKILL and timeout > 0:
            environment = {**os.environ, **tether.environment}
            workers = self._by_pidfd.values()
            dump = StackDump(workers, self._stack_files, self._epoll, environment=environment, now=now)
        self._stopping = Ending(
            find, self._epoll, death_signal=death_sig, grace=timeout, now=now, prelude=dump
        )

    def advance(self) -> None:
        """Perform the steps that are due. It never blocks, and calling it too often does no harm."""
        if self._is_stopped or self._epoll is None or self._tether is None:
            return
        self._take_events()
        if self._stopping is None:
            return
        now = time.monotonic()
        self._stopping.advance(now)
        if not self._stopping.is_over:
            return
        if self._finish_by is None:
            self._look_for_births(self._tether, self._epoll)
            for worker in list(self._by_pidfd.values()):
                self._note_exit(worker, self._epoll)
            # Room beyond the pump's own deadline, so that only a stuck file system ever outlives it.
            self._finish_by = now + 2 * DRAIN_SECONDS
            self._output.finish(DRAIN_SECONDS)
        if self._output.is_done or now >= self._finish_by:
            self._end(self._stopping)

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` has done all it can: nothing runs, or :attr:`survivors` says what does."""
        return self._is_stopped

    # -- the blocking interface --------------------------------------------------------------------

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """Wait until all workers have ended well or one has failed; then end the whole group.

        Args:
            timeout: Seconds to wait; 0 looks once; a negative number waits without limit.
            period: The longest single wait in seconds. Exits are seen when they happen, not once a period.

        Returns:
            The result, or None if the time is over and all is well so far.

        Raises:
            RuntimeError: The group isn't started.
        """
        if not self.is_started:
            raise RuntimeError(f"the workers of {self.name!r} aren't started: call start() first")
        deadline = None if timeout < 0 else time.monotonic() + timeout
        while (result := self.poll()) is None:
            left = period if deadline is None else min(period, deadline - time.monotonic())
            if left <= 0:
                return None
            self._sleep(left)
        self.close()
        return self.poll() or result

    def close(self, death_sig: int | None = None, timeout: float = 30) -> None:
        """End the group and wait until it is over: :meth:`stop` and :meth:`advance` in a loop.

        Args:
            death_sig: How to ask the workers to end; None means SIGTERM.
            timeout: Seconds until they are killed. The kill itself is bounded too.
        """
        self.stop(signal.SIGTERM if death_sig is None else death_sig, timeout)
        self.advance()
        while not self._is_stopped:
            self._sleep(1.0)
            self.advance()

    def _sleep(self, most: float) -> None:
        """Wait for an event or a due step, at most so many seconds."""
        if self._epoll is None:
            return
        due = self.next_wakeup()
        left = most if due is None else min(most, due - time.monotonic())
        self._epoll.poll(max(left, 0.0), 1)

    # -- inside ------------------------------------------------------------------------------------

    def _take_events(self) -> None:
        if self._epoll is None or self._tether is None:
            return
        for fd, _ in self._epoll.poll(0):
            if fd in self._by_pidfd:
                self._note_exit(self._by_pidfd[fd], self._epoll)
            elif self._tether_watch is not None and self._tether_watch.note(fd):
                continue
            elif self._stopping is None or not self._stopping.note(fd):
                self._output.acknowledge()
                self._look_for_births(self._tether, self._epoll)
        now = time.monotonic()
        for rank, ended_at in self._outcomes.unsettled.items():
            if self._output.is_drained(rank) or now >= ended_at + DRAIN_SECONDS:
                self._settle(self._workers[rank], ended_at)

    def _note_exit(self, worker: Worker, epoll: select.epoll) -> None:
        if worker.poll() is not None:
            epoll.unregister(worker.pidfd)
            del self._by_pidfd[worker.pidfd]
            self._note_end(worker)

    def _note_end(self, worker: Worker) -> None:
        self._outcomes.note_exit(worker.local_rank, time.monotonic())
        self._output.drain(worker.local_rank)

    def _settle(self, worker: Worker, ended_at: float) -> None:
        """Turn an exit into a return value or a failure, now that its output is complete."""
        rank = worker.local_rank
        exitcode, message = worker.exitcode or 0, worker.message
        if exitcode == 0:
            try:
                self._outcomes.settle_value(rank, self._return_value(rank))
            except ValueError as error:
                exitcode, message = FAILURE_CODE, str(error)
            else:
                return
        self._outcomes.settle_failure(
            ProcessFailure(
                local_rank=rank,
                pid=worker.pid,
                exitcode=exitcode,
                error_file=self.error_files.get(rank, ""),
                message=message,
                stderr_tail=self._output.tail(rank),
                victim=rank in self._stopped_ranks,
                observed=ended_at,
            )
        )

    def _end(self, stopping: Ending) -> None:
        """Give back everything. What could not be killed is reported and left."""
        for rank, ended_at in self._outcomes.unsettled.items():
            self._settle(self._workers[rank], ended_at)
        self.survivors = stopping.survivors
        for process in self.survivors:
            logger.error(
                "process %d (state %s) of %r could not be killed and is left behind",
                process.pid,
                process.state,
                self.name,
            )
        sessions = {worker.pid for worker in self._workers.values()}
        for worker in self._workers.values():
            worker.collect()
        collect_orphans(sessions=sessions, killed=stopping.seen)
        stopping.close()
        remove_empty(self._stack_files.values())
        self._output.close()
        self._by_pidfd.clear()
        if self._tether_watch is not None:
            self._tether_watch.close()
        if self._tether is not None:
            self._tether.close()
        if self._epoll is not None:
            self._epoll.close()
        self._tether, self._tether_watch, self._epoll = None, None, None
        self._release_all()

    def _release_all(self) -> None:
        self._release()
        self._logs_specs.close()
        self._is_stopped = True


class SubprocessContext(PContext):
    """Workers that are commands: the entry point is what is executed, ``args`` are its arguments."""

    def _command(self, local_rank: int) -> Command:
        return Command(argv=[str(self.entrypoint), *map(str, self.args[local_rank])])
