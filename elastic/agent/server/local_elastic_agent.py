"""The agent whose workers are processes on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from string import Template

from elastic.multiprocessing import (
    LogsSpecs,
    NumaOptions,
    PContext,
    RunProcsResult,
    start_processes,
)
from elastic.multiprocessing.api import choose_logs_specs
from elastic.multiprocessing.errors.oom import oom_hint, oom_kills
from elastic.utils import macros

from .api import DEFAULT_NEWS, DEFAULT_SIGNALS, SimpleElasticAgent
from .instruments import Instrument
from .restarts import RestartPolicy
from .spec import RunResult, WorkerGroup, WorkerSpec, WorkerState


class LocalElasticAgent(SimpleElasticAgent):
    """An agent that starts its workers with :func:`elastic.multiprocessing.start_processes`.

    `logs_specs` decides where their output goes (default: what the spec's `redirects`, `tee` and `log_dir`
    say) and `log_line_prefix_template` what each line on the console begins with: a `string.Template` with
    `role_name`, `rank`, `local_rank`, `node_rank`, `round` and `hostname`. `start_method` is for functions
    (default: the spec's). `numa_options` and `dump_stacks` are those of `start_processes`. In every argument
    of the spec that is a text, the macros (:class:`elastic.utils.macros`, such as `${local_rank}`) stand for
    each worker's own values. `worker_env` adds to the environment of the worker with a local rank. The rest
    is as in `SimpleElasticAgent`.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs | None = None,
        start_method: str | None = None,
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: float = 30,
        *,
        worker_env: Callable[[int], Mapping[str, str]] | None = None,
        numa_options: NumaOptions | None = None,
        dump_stacks: bool = False,
        duplicate_stdout_filters: Sequence[str] | None = None,
        duplicate_stderr_filters: Sequence[str] | None = None,
        signals_to_handle: Iterable[int] = DEFAULT_SIGNALS,
        signals_to_pass_on: Iterable[int] = DEFAULT_NEWS,
        notice_timeout: float = 0,
        notice_signal: int = 0,
        restarts: RestartPolicy | None = None,
        instruments: Iterable[Instrument] = (),
    ) -> None:
        super().__init__(
            spec,
            exit_barrier_timeout=exit_barrier_timeout,
            shutdown_timeout=shutdown_timeout,
            signals_to_handle=signals_to_handle,
            signals_to_pass_on=signals_to_pass_on,
            notice_timeout=notice_timeout,
            notice_signal=notice_signal,
            restarts=restarts,
            instruments=instruments,
        )
        self._logs_specs = choose_logs_specs(
            logs_specs, log_dir=spec.log_dir, redirects=spec.redirects, tee=spec.tee
        )
        self._start_method = spec.start_method if start_method is None else start_method
        self._prefix = None if log_line_prefix_template is None else Template(log_line_prefix_template)
        self._worker_env = worker_env
        self._numa_options = numa_options
        self._dump_stacks = dump_stacks
        self._filters = (duplicate_stdout_filters, duplicate_stderr_filters)
        self._context: PContext | None = None
        self._oom_kills: int | None = None

    def _start_workers(self, group: WorkerGroup, environments: dict[int, dict[str, str]]) -> dict[int, int]:
        spec = group.spec
        entrypoint = spec.entrypoint
        if entrypoint is None:
            raise AssertionError("the spec has checked that there is an entrypoint")
        if self._worker_env is not None:
            environments = {i: env | dict(self._worker_env(i)) for i, env in environments.items()}
        self._oom_kills = oom_kills()
        self._context = start_processes(
            spec.role,
            entrypoint,
            {rank: macros.substitute(spec.args, environ=env) for rank, env in environments.items()},
            environments,
            self._logs_specs,
            self._prefixes(group),
            start_method=self._start_method,
            numa_options=self._numa_options,
            dump_stacks=self._dump_stacks,
            duplicate_stdout_filters=self._filters[0],
            duplicate_stderr_filters=self._filters[1],
        )
        return self._context.pids()

    def _prefixes(self, group: WorkerGroup) -> dict[int, str] | None:
        if self._prefix is None:
            return None
        shared = {
            "role_name": group.spec.role,
            "node_rank": group.group_rank,
            "round": group.round,
            "hostname": socket.gethostname(),
        }
        return {
            w.local_rank: self._prefix.safe_substitute(shared, rank=w.global_rank, local_rank=w.local_rank)
            for w in group.workers
        }

    def _monitor_workers(self, group: WorkerGroup) -> RunResult:
        if self._context is None:
            return RunResult(WorkerState.INIT)
        result = self._context.poll()
        if result is None:
            return RunResult(WorkerState.HEALTHY)
        if result.failures:
            result = self._explained(result)
        return _by_global_rank(result, {w.local_rank: w.global_rank for w in group.workers})

    def _explained(self, result: RunProcsResult) -> RunProcsResult:
        """The result with what only this node can find out about its failures."""
        now = oom_kills()
        failures = {
            i: replace(
                failure,
                hint=oom_hint(failure.exitcode, before=self._oom_kills, now=now),
                log=result.stderrs.get(i, "").replace(os.devnull, ""),
            )
            for i, failure in result.failures.items()
        }
        return replace(result, failures=failures)

    def _stop_workers(self, group: WorkerGroup, death_signal: int, timeout: float) -> None:  # noqa: ARG002
        if self._context is not None:
            self._context.stop(death_signal, timeout)

    def _workers_stopped(self, group: WorkerGroup) -> bool:  # noqa: ARG002
        if self._context is None:
            return True
        self._context.advance()
        return self._context.stopped

    def _notify_workers(self, group: WorkerGroup, number: int) -> set[int]:
        return (
            super()._notify_workers(group, number) if self._context is None else self._context.notify(number)
        )

    def _running_workers(self, group: WorkerGroup) -> set[int]:
        return super()._running_workers(group) if self._context is None else self._context.running()

    def _succeeded_workers(self, group: WorkerGroup) -> set[int]:
        return super()._succeeded_workers(group) if self._context is None else self._context.succeeded()

    def _workers_fd(self, group: WorkerGroup) -> int | None:  # noqa: ARG002
        if self._context is None or self._context.stopped:
            return None
        return self._context.fileno()

    def _workers_wakeup(self, group: WorkerGroup) -> float | None:  # noqa: ARG002
        return None if self._context is None or self._context.stopped else self._context.next_wakeup()


def _by_global_rank(result: RunProcsResult, ranks: Mapping[int, int]) -> RunResult:
    return RunResult(
        WorkerState(result.state),
        return_values={ranks[i]: value for i, value in result.return_values.items()},
        failures={ranks[i]: failure for i, failure in result.failures.items()},
        stdouts={ranks[i]: path for i, path in result.stdouts.items()},
        stderrs={ranks[i]: path for i, path in result.stderrs.items()},
        victims={ranks[i]: victim for i, victim in result.victims.items()},
    )
