"""``LaunchConfig``: one job as one agent is told about it, checked once.

A value. It reads no environment and touches nothing; what depends on the machine (devices, CPUs,
the local etcd of a single node) is worked out by :mod:`elastic.launcher.assembly`.
"""

import math
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any

from elastic.agent.server import RestartPolicy
from elastic.launcher import backends, values
from elastic.launcher.errors import UsageError
from elastic.launcher.field_types import check_types
from elastic.launcher.flags import DEFAULT_NEWS, DEFAULT_SIGNALS
from elastic.launcher.instrument_settings import InstrumentSettings
from elastic.multiprocessing import LogsSpecs, NumaOptions
from elastic.multiprocessing.redirects import Streams
from elastic.utils.endpoints import Endpoint

__all__ = ["Duration", "LaunchConfig"]

Duration = float | timedelta  # a float is seconds

_UNSET_TIMEOUT = -1

# What RendezvousParameters takes by name, so that no setting may have the name; and what to use instead.
_OWN_FIELDS = {
    "backend": "--rdzv-backend",
    "endpoint": "--rdzv-endpoint",
    "run_id": "--rdzv-id",
    "min_nodes": "--nnodes",
    "max_nodes": "--nnodes",
    "local_addr": "--local-addr",
}


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """Settings of an elastic launch; names and order are those of torch's.

    ``min_nodes``, ``max_nodes``
        the range the number of nodes may move in.
    ``nproc_per_node``
        workers on this node.
    ``logs_specs``
        where output goes; instead of ``log_dir``, ``redirects``, ``tee`` and the other settings of logs.
        Or the name of an entry point of the group ``elastic.logs_specs``, which is given those settings.
    ``run_id``
        the job's name, the same on every node. "" and "none": a new one, which only a single node
        may ask for.
    ``role``
        role of the workers of this node.
    ``rdzv_endpoint``
        where the backend is found, in its own form (see ``--rdzv-endpoint``). "": this process brings what it
        needs, which only a single node may ask for; static meets at ``master_addr`` and ``master_port``.
    ``rdzv_backend``, ``rdzv_configs``
        the rendezvous backend and its settings; the backend refuses settings that it does not know.
    ``rdzv_timeout``
        how long to wait for enough nodes: the backend's ``join_timeout``; -1 leaves it to the backend.
    ``max_restarts``
        failures of workers that the job survives.
    ``monitor_interval``
        longest time between two looks at the workers.
    ``start_method``
        how workers that are functions are started: "spawn", "fork" or "forkserver".
    ``log_line_prefix_template``
        prefix of teed lines on the console, with ``${role_name}``, ``${rank}``, ``${local_rank}``,
        ``${node_rank}``, ``${round}`` and ``${hostname}``; None: ``[${role_name}${local_rank}]:``.
    ``log_dir``, ``redirects``, ``tee``
        the folder for logs, and which streams go there, without and with the console.
    ``local_ranks_filter``, ``ranks_filter``
        workers whose output the console shows, by local rank and by rank in the job; None: all.
    ``log_max_size``, ``log_keep``
        size in bytes at which a log is replaced by a fresh one (None: never), and how many of those
        replaced are kept.
    ``dump_stacks``
        before workers are stopped, keep the stacks of their threads beside their logs.
    ``numa_options``
        which CPUs to bind workers to; None: none.
    ``local_addr``
        address of this node that the others reach; None: that from which it reaches the rendezvous.
    ``node_rank``, ``master_addr``, ``master_port``
        of the backend static, and used by no other: this node's rank, and where node rank 0 is. With a port
        the workers of rank 0 get that one, else (None or 0) a free one.
    ``signals_to_handle``
        names of the signals on which this node stops its workers and leaves; a list, or one string
        with commas.
    ``signals_to_pass_on``
        names of the signals that are news for the workers of this node, in the same form. Workers that
        have a handler get them. One that is also in ``signals_to_handle`` is not passed on.
    ``restart_backoff``
        pause before the second restart in a row of workers that fail within a minute; doubled for each
        further one, up to 30 seconds. 0: no pause.
    ``max_same_failures``
        how many equal failures in a row, each within a minute, end the job whatever ``max_restarts``
        allows; 0: none do.
    ``exit_barrier_timeout``
        how long this node, when its workers are done, waits for the others. They need not be waited for when
        they are done or gone.
    ``finish_timeout``
        how long workers may run on after the first of this node has ended well; those that do count as
        failed. 0: for ever.
    ``notice_timeout``
        how long workers may take to save and to acknowledge before they are stopped for nodes that wait
        to be let in, or that leave; see :mod:`elastic.worker`. 0: they are not told.
    ``notice_signal``
        name of a signal that workers get with the notice, if they have a handler for it; None: none.
    ``duplicate_stdout_filters``, ``duplicate_stderr_filters``
        lines that hold one of these strings are also collected in a file of their own.
    ``shutdown_timeout``
        how long workers may take to end before they are killed; None:
        ``TORCH_ELASTIC_SHUTDOWN_TIMEOUT``, else 30 seconds.
    ``devices``
        devices this agent uses, among those that it sees; None: all.
    ``devices_per_rank``
        give each worker this many devices of its own; None: every worker sees all of them.
    ``device_variable``
        environment variable that tells workers their devices.
    ``virtual_local_rank``
        each worker sees its own devices only (one, without ``devices_per_rank``) and LOCAL_RANK=0.

    ``event_log_handler``
        where events of the job go: "console", "file:PATH", "otel", a plug-in's, or "null", nowhere.
    ``metrics_cfg``
        which handler the values of each group of :mod:`elastic.metrics` go to in this process; see
        :class:`elastic.metrics.MetricsConfig`.
    ``instruments``
        health checks, metrics and the watch over workers; see :class:`InstrumentSettings`.

    Durations are ``timedelta``, or a number of seconds.

    :raises UsageError: (a ``ValueError``) one sentence, for the first setting that is wrong.
    """

    min_nodes: int = 1
    max_nodes: int = 1
    nproc_per_node: int = 1
    logs_specs: LogsSpecs | str | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: Mapping[str, Any] = field(default_factory=dict)
    rdzv_timeout: Duration = _UNSET_TIMEOUT
    max_restarts: int = 3
    monitor_interval: Duration = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    _: KW_ONLY
    local_addr: str | None = None
    node_rank: int = 0
    master_addr: str | None = None
    master_port: int | None = None
    signals_to_handle: str | Sequence[str] = DEFAULT_SIGNALS
    signals_to_pass_on: str | Sequence[str] = DEFAULT_NEWS
    restart_backoff: Duration = 1.0
    max_same_failures: int = 5
    exit_barrier_timeout: Duration = 300.0
    finish_timeout: Duration = 0.0
    notice_timeout: Duration = 0.0
    notice_signal: str | None = None
    duplicate_stdout_filters: Sequence[str] | None = None
    duplicate_stderr_filters: Sequence[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: Duration | None = None
    log_dir: str | os.PathLike[str] | None = None
    redirects: Streams | None = None
    tee: Streams | None = None
    local_ranks_filter: Sequence[int] | None = None
    ranks_filter: Sequence[int] | None = None
    log_max_size: int | None = None
    log_keep: int = 5
    dump_stacks: bool = False
    numa_options: NumaOptions | None = None
    devices: Sequence[str] | None = None
    devices_per_rank: int | None = None
    device_variable: str = "CUDA_VISIBLE_DEVICES"
    event_log_handler: str = "null"
    metrics_cfg: Mapping[str, str] = field(default_factory=dict)
    instruments: InstrumentSettings = field(default_factory=InstrumentSettings)

    def __post_init__(self) -> None:
        check_types(self)
        self._check_size()
        self._check_rendezvous()
        self._check_workers()
        self._check_output()

    @property
    def is_standalone(self) -> bool:
        """Whether this agent is to bring its own etcd or store."""
        return backends.brings_its_own(self.rdzv_backend, self.rdzv_endpoint, max_nodes=self.max_nodes)

    @property
    def endpoint(self) -> str:
        """``rdzv_endpoint``, or where the nodes of the backend static meet."""
        if self.rdzv_backend == "static" and not self.rdzv_endpoint:
            return backends.static_endpoint(self.master_addr, self.master_port, alone=self.max_nodes == 1)
        return self.rdzv_endpoint

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The hosts and ports of ``endpoint``, if it has the form of such; else nothing."""
        if self.is_standalone:
            return ()
        return backends.endpoints(self.rdzv_backend, self.endpoint, settings=self.rdzv_configs)

    @property
    def has_run_id(self) -> bool:
        """Whether the job has a name; without one, a new one is to be made."""
        return self.run_id not in ("", "none")

    @property
    def rendezvous_settings(self) -> dict[str, Any]:
        """``rdzv_configs``, with ``rdzv_timeout`` as the ``join_timeout`` it stands for."""
        settings = dict(self.rdzv_configs)
        if self.rdzv_backend == "static":
            settings.setdefault("rank", self.node_rank)
        timeout = _seconds(self.rdzv_timeout)
        if timeout != _UNSET_TIMEOUT:
            settings["join_timeout"] = timeout
        return settings

    @property
    def monitor_seconds(self) -> float:
        """``monitor_interval`` in seconds."""
        return _seconds(self.monitor_interval)

    @property
    def signals(self) -> tuple[signal.Signals, ...]:
        """``signals_to_handle`` as signals."""
        return _signals(self.signals_to_handle)

    @property
    def passed_signals(self) -> tuple[signal.Signals, ...]:
        """``signals_to_pass_on`` as signals, without those to handle."""
        return tuple(number for number in _signals(self.signals_to_pass_on) if number not in self.signals)

    @property
    def exit_barrier_seconds(self) -> float:
        """``exit_barrier_timeout`` in seconds."""
        return _seconds(self.exit_barrier_timeout)

    @property
    def finish_seconds(self) -> float:
        """``finish_timeout`` in seconds."""
        return _seconds(self.finish_timeout)

    @property
    def notice_seconds(self) -> float:
        """``notice_timeout`` in seconds."""
        return _seconds(self.notice_timeout)

    @property
    def notice_number(self) -> int:
        """``notice_signal`` as a number; 0 for none."""
        return signal.Signals[self.notice_signal] if self.notice_signal else 0

    @property
    def restarts(self) -> RestartPolicy:
        """When workers are started again after a failure."""
        return RestartPolicy(backoff=_seconds(self.restart_backoff), same_failures=self.max_same_failures)

    def shutdown_seconds(self, environ: Mapping[str, str]) -> float:
        """``shutdown_timeout`` in seconds; ``environ`` decides where it is None.

        :raises UsageError: the variable is not a duration.
        """
        if self.shutdown_timeout is not None:
            return _seconds(self.shutdown_timeout)
        text = environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") or "30"
        try:
            return values.seconds(zero=True)(text)
        except ValueError as error:
            raise UsageError(f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT={text}: {error}") from None

    def _check_size(self) -> None:
        _at_least("min_nodes", self.min_nodes, 1)
        _at_least("nproc_per_node", self.nproc_per_node, 1)
        if self.max_nodes < self.min_nodes:
            raise UsageError(
                f"max_nodes={self.max_nodes} is below min_nodes={self.min_nodes}; give MIN <= MAX"
            )

    def _check_rendezvous(self) -> None:
        if not self.rdzv_backend:
            raise UsageError("rdzv_backend is empty; name one, such as etcd")
        if self.has_run_id:
            try:
                values.run_id(self.run_id)
            except ValueError as error:
                raise UsageError(f"run_id {self.run_id!a} {error}") from None
        backends.check(
            self.rdzv_backend,
            self.endpoint,
            nodes=values.NodeRange(self.min_nodes, self.max_nodes),
            node_rank=self.node_rank,
            has_run_id=self.has_run_id,
            settings=self.rdzv_configs,
        )
        for key in self.rdzv_configs:
            if key in _OWN_FIELDS:
                raise UsageError(
                    f"rdzv_configs holds {key!r}, which is a field and a flag of its own; "
                    f"use {_OWN_FIELDS[key]}"
                )
        timeout = _seconds(self.rdzv_timeout)
        if timeout != _UNSET_TIMEOUT:
            if not timeout > 0 or math.isinf(timeout):
                raise UsageError(f"rdzv_timeout={self.rdzv_timeout} is not a time to wait; make it positive")
            rivals = [key for key in ("join_timeout", "timeout") if key in self.rdzv_configs]
            if rivals:
                raise UsageError(f"--rdzv-timeout and --rdzv-conf {rivals[0]}= set the same time; keep one")

    def _check_workers(self) -> None:
        if not self.role:
            raise UsageError("role is empty; name one, such as default_role")
        _at_least("max_restarts", self.max_restarts, 0)
        if not 0 < self.monitor_seconds < math.inf:
            raise UsageError(f"monitor_interval={self.monitor_interval} is no interval; make it positive")
        if self.start_method not in ("spawn", "fork", "forkserver"):
            raise UsageError(
                f"start_method={self.start_method!r} is unknown; write spawn, fork or forkserver"
            )
        if self.shutdown_timeout is not None and not 0 <= _seconds(self.shutdown_timeout) < math.inf:
            raise UsageError(f"shutdown_timeout={self.shutdown_timeout} is no duration; make it 0 or more")
        if self.devices_per_rank is not None:
            _at_least("devices_per_rank", self.devices_per_rank, 1)
        for name in ("notice_timeout", "restart_backoff", "exit_barrier_timeout", "finish_timeout"):
            if not 0 <= _seconds(getattr(self, name)) < math.inf:
                raise UsageError(f"{name}={getattr(self, name)} is no duration; make it 0 or more")
        _at_least("max_same_failures", self.max_same_failures, 0)
        for name in ("signals_to_handle", "signals_to_pass_on", "notice_signal"):
            _check_signals(name, getattr(self, name) or ())

    def _check_output(self) -> None:
        if isinstance(self.logs_specs, LogsSpecs):
            settings = ("log_dir", "redirects", "tee", "local_ranks_filter", "ranks_filter", "log_max_size")
            rivals = [name for name in settings if getattr(self, name) is not None]
            if rivals:
                raise UsageError(f"logs_specs and {', '.join(rivals)} set the same thing; keep one")
        if self.log_max_size is not None:
            _at_least("log_max_size", self.log_max_size, 1)
        _at_least("log_keep", self.log_keep, 1)
        if self.log_line_prefix_template is not None:
            try:
                values.prefix_template(self.log_line_prefix_template)
            except ValueError as error:
                raise UsageError(f"log_line_prefix_template: {error}") from None
        for rank in self.local_ranks_filter or ():
            if not 0 <= rank < self.nproc_per_node:
                raise UsageError(
                    f"local_ranks_filter names local rank {rank}, and this node has {self.nproc_per_node} "
                    "workers, counted from 0; leave it out"
                )


def _seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def _signals(named: str | Sequence[str]) -> tuple[signal.Signals, ...]:
    names = [name.strip() for name in named.split(",")] if isinstance(named, str) else named
    return tuple(signal.Signals[name] for name in names if name)


def _check_signals(field_name: str, named: str | Sequence[str]) -> None:
    try:
        uncatchable = {signal.SIGKILL, signal.SIGSTOP}.intersection(_signals(named))
    except KeyError as error:
        raise UsageError(
            f"{field_name} names {error.args[0]!r}, which is no signal; write names such as SIGTERM"
        ) from None
    if uncatchable:
        raise UsageError(
            f"{field_name} names {uncatchable.pop().name}, which nobody can handle; leave it out"
        )


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"{name}={value} is too small; make it {least} or more")
