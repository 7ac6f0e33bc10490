"""Puts an agent together from a configuration, and runs it.

Composition: finds out what the machine has, starts the etcd of a single node, makes the rendezvous and
the agent. It decides nothing about the job; the agent does.
"""

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from elastic.agent.server import ElasticAgent, LocalElasticAgent, RunResult, WorkerSpec
from elastic.launcher import devices, machine, workers
from elastic.launcher.config import LaunchConfig
from elastic.launcher.errors import LaunchError, UsageError
from elastic.launcher.instruments import check_this_node, make_instruments
from elastic.launcher.lookup import loopback_hosts, make_log_dir
from elastic.launcher.signals import collecting_children, raised_as_exceptions
from elastic.launcher.standalone import Brought, bring
from elastic.launcher.values import NodeRange
from elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, Std
from elastic.multiprocessing.logs_registry import create_logs_specs
from elastic.multiprocessing.workers import require_kernel_support
from elastic.rendezvous import RendezvousHandler, RendezvousParameters, create_handler
from elastic.utils.exit_codes import ExitCode
from elastic.utils.scratch import sweep

__all__ = ["Entrypoint", "agent_devices", "run_agent"]

logger = logging.getLogger("elastic.launcher")

Entrypoint = Callable[..., Any] | str  # a function that each worker calls, or a program that it runs


def run_agent(
    config: LaunchConfig,
    entrypoint: Entrypoint,
    *,
    args: Sequence[Any],
    environ: Mapping[str, str],
    on_agent: Callable[[ElasticAgent], None] | None = None,
) -> RunResult:
    """Run one agent to its end, and leave nothing behind.

    :param args: the arguments of the entrypoint.
    :param environ: this process's environment.
    :param on_agent: called with the agent before it runs, for a caller who may want to stop it.
    :raises UsageError: the configuration cannot be carried out here.
    :raises LaunchError: the local etcd does not start.
    :raises RendezvousError: the rendezvous cannot be used.
    :raises SignalException: a signal came while the agent was not running.
    """
    worker_env = _worker_env(config, environ)
    shutdown_timeout = config.shutdown_seconds(environ)
    run_id = _run_id(config)
    with ExitStack() as stack:
        start_up = stack.enter_context(raised_as_exceptions(config.signals, ignored=config.passed_signals))
        stack.enter_context(collecting_children())
        _check_system()
        for directory in sweep():
            logger.info("removed %s, which an agent that was killed had left behind", directory)
        labels = check_this_node(config.instruments, environ)
        logs_specs = stack.enter_context(_logs(config))
        where = Brought(config.rdzv_backend, config.endpoint)
        if config.is_standalone:
            where = stack.enter_context(bring(config.rdzv_backend, environ))
        elif config.max_nodes > 1:
            _warn_of_loopback(config)
        logger.info(
            "run id %s%s: nodes %s, workers on this one %d, rendezvous by %s%s",
            run_id,
            "" if config.has_run_id else " (not given)",
            NodeRange(config.min_nodes, config.max_nodes),
            config.nproc_per_node,
            where.backend,
            f" at {where.endpoint}" if where.endpoint else "",
        )
        handler = _handler(config, where, run_id=run_id)
        stack.callback(handler.shutdown)
        spec = WorkerSpec(
            role=config.role,
            local_world_size=config.nproc_per_node,
            rdzv_handler=handler,
            entrypoint=entrypoint,
            args=tuple(args),
            max_restarts=config.max_restarts,
            monitor_interval=config.monitor_seconds,
            local_addr=config.local_addr,
            labels=labels,
        )
        instruments = make_instruments(config, spec, environ=environ, owner=stack)
        agent = LocalElasticAgent(
            spec,
            logs_specs,
            start_method=config.start_method,
            log_line_prefix_template=config.log_line_prefix_template,
            shutdown_timeout=shutdown_timeout,
            exit_barrier_timeout=config.exit_barrier_seconds,
            worker_env=worker_env.__getitem__,
            numa_options=config.numa_options,
            dump_stacks=config.dump_stacks,
            duplicate_stdout_filters=config.duplicate_stdout_filters,
            duplicate_stderr_filters=config.duplicate_stderr_filters,
            signals_to_handle=config.signals,
            signals_to_pass_on=config.passed_signals,
            notice_timeout=config.notice_seconds,
            notice_signal=config.notice_number,
            restarts=config.restarts,
            instruments=instruments,
        )
        if on_agent is not None:
            on_agent(agent)
        start_up.check()
        stack.callback(start_up.leave)  # the first to be called when the agent is done
        return agent.run()


def agent_devices(
    *, devices_wanted: Sequence[str] | None, variable: str, environ: Mapping[str, str]
) -> tuple[str, ...] | None:
    """The devices that an agent on this machine uses; None if nobody can tell.

    :param devices_wanted: those that ``--devices`` picks; None: all that it sees.
    :param variable: the environment variable that hides devices.
    :raises UsageError: the machine's devices cannot be counted, or those picked are not there.
    """
    # NVML knows NVIDIA's devices; what another variable hides is counted by what it says.
    installed = machine.installed_devices() if variable == "CUDA_VISIBLE_DEVICES" else None
    return devices.selected(devices.visible(environ.get(variable), installed), devices_wanted)


def _worker_env(config: LaunchConfig, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """What each worker's environment has besides the agent's own and the world's, by local rank."""
    shared = {
        "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(number.name for number in config.signals),
        **_thread_variables(config, environ),
    }
    per_rank = config.devices_per_rank or (1 if config.virtual_local_rank else None)
    if config.devices is None and per_rank is None:
        return [shared] * config.nproc_per_node
    available = agent_devices(devices_wanted=config.devices, variable=config.device_variable, environ=environ)
    return [
        shared
        | workers.device_variables(share, variable=config.device_variable, virtual=config.virtual_local_rank)
        for share in devices.shares(available, config.nproc_per_node, per_rank=per_rank)
    ]


def _thread_variables(config: LaunchConfig, environ: Mapping[str, str]) -> dict[str, str]:
    cpus = machine.usable_cpus()
    threads = workers.thread_count(environ, config.nproc_per_node, cpus=cpus)
    if threads is None:
        return {}
    logger.info(
        "OMP_NUM_THREADS=%d for each of %d workers, as %d CPUs are usable; set it to choose otherwise",
        threads,
        config.nproc_per_node,
        cpus,
    )
    return {"OMP_NUM_THREADS": str(threads)}


def _check_system() -> None:
    """Find out before the other nodes do that workers can't run here."""
    try:
        require_kernel_support()
    except (RuntimeError, OSError) as error:
        raise UsageError(f"workers can't run here: {error}") from error


@contextmanager
def _logs(config: LaunchConfig) -> Iterator[LogsSpecs]:
    """Where output goes; says so once: at the start if it is known, else at the end if there is any."""
    specs = _logs_specs(config)
    known = specs.root_log_dir
    if known:
        logger.info("logs go to %s", known)
    try:
        yield specs
    finally:
        specs.close()
        if not known and specs.root_log_dir:
            logger.info("logs are in %s", specs.root_log_dir)


def _logs_specs(config: LaunchConfig) -> LogsSpecs:
    named = config.logs_specs
    if isinstance(named, LogsSpecs):
        return named
    if config.log_dir is not None and named is None:
        make_log_dir(config.log_dir)
    _warn_of_strangers(config)
    settings: dict[str, Any] = {
        "log_dir": config.log_dir,
        "redirects": Std.NONE if config.redirects is None else config.redirects,
        "tee": Std.NONE if config.tee is None else config.tee,
        "local_ranks_filter": None if config.local_ranks_filter is None else set(config.local_ranks_filter),
    }
    # A plug-in need not know what was not asked for.
    if config.ranks_filter is not None:
        settings["ranks_filter"] = set(config.ranks_filter)
    if config.log_max_size is not None:
        settings |= {"max_size": config.log_max_size, "keep": config.log_keep}
    if named is None:
        return DefaultLogsSpecs(**settings)
    try:
        return create_logs_specs(named, **settings)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
    except RuntimeError as error:  # a plug-in that is broken
        raise LaunchError(str(error), ExitCode.INTERNAL) from error


def _warn_of_strangers(config: LaunchConfig) -> None:
    """Say where redirects name local ranks that this node does not have."""
    for name, chosen in (("redirects", config.redirects), ("tee", config.tee)):
        if not isinstance(chosen, Mapping):
            continue
        strangers = sorted(rank for rank in chosen if rank >= config.nproc_per_node)
        if strangers:
            logger.warning(
                "--%s names local rank %s, which has no effect: this node has %d workers, counted from 0",
                name,
                ", ".join(map(str, strangers)),
                config.nproc_per_node,
            )


def _run_id(config: LaunchConfig) -> str:
    """The job's name; a new one for a single node, and what all nodes have in common where they need none."""
    if config.has_run_id:
        return config.run_id
    return secrets.token_hex(6) if config.max_nodes == 1 else "none"


def _handler(config: LaunchConfig, where: Brought, *, run_id: str) -> RendezvousHandler:
    try:
        return create_handler(
            RendezvousParameters(
                where.backend,
                where.endpoint,
                run_id,
                config.min_nodes,
                config.max_nodes,
                local_addr=config.local_addr,
                **config.rendezvous_settings,
            )
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    except RuntimeError as error:  # a plug-in that is broken
        raise LaunchError(str(error), ExitCode.INTERNAL) from error


def _warn_of_loopback(config: LaunchConfig) -> None:
    flag = (
        "--master-addr" if config.rdzv_backend == "static" and not config.rdzv_endpoint else "--rdzv-endpoint"
    )
    by_agent = config.rdzv_backend != "etcd"
    for host in loopback_hosts((endpoint.host for endpoint in config.endpoints), serves_names=by_agent):
        logger.warning(
            "%s is this machine alone: nodes on other machines will not find this job; "
            "give %s an address that all of them reach",
            host,
            flag,
        )
