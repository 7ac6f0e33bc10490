"""The command: ``elasticrun``, ``python -m elastic.run``, and ``main()`` for programs.

Thin: it reads the command line and the environment, runs one agent, and says in words and in an exit
code how it ended. Exit codes are listed in :mod:`elastic.launcher.exit_codes`.
"""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from elastic import __version__
from elastic.launcher import devices, exit_codes, logs, lookup, machine
from elastic.launcher.api import raise_for_failure
from elastic.launcher.arguments import HelpRequested, Options, VersionRequested, parse
from elastic.launcher.assembly import agent_devices, run_agent
from elastic.launcher.config import LaunchConfig
from elastic.launcher.entrypoint import worker_command
from elastic.launcher.errors import LaunchError, UsageError
from elastic.launcher.instrument_settings import InstrumentSettings
from elastic.multiprocessing import AffinityMode, NumaOptions
from elastic.multiprocessing.errors import ChildFailedError
from elastic.multiprocessing.signals import SignalException
from elastic.rendezvous.errors import RendezvousError, RendezvousGracefulExitError
from elastic.utils.exit_codes import ExitCode

__all__ = ["main"]

logger = logging.getLogger("elastic.launcher")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; raises nothing but what a caller's own signal handlers raise.

    :param args: the arguments, without the program's name; None: those of this process.
    """
    try:
        return _run(sys.argv[1:] if args is None else list(args), os.environ)
    except HelpRequested as text:
        return _answered(str(text))
    except VersionRequested:
        return _answered(f"elasticrun {__version__}")
    except RendezvousGracefulExitError as leaving:
        logger.info("%s", leaving)
        return ExitCode.SUCCESS
    except (UsageError, LaunchError, RendezvousError) as error:
        return _told(f"error: {error}", exit_codes.exit_code_of(error))
    except SignalException as told:
        return _told(str(told), exit_codes.signal_exit_code(told.sigval))
    except KeyboardInterrupt:
        return _told("interrupted", exit_codes.signal_exit_code(signal.SIGINT))
    except Exception:
        # The outermost frame: what arrives here is a fault of ours, and its traceback is the report.
        logger.exception("a fault of the launcher itself; please report it")
        return ExitCode.INTERNAL


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    options = parse(argv, environ)
    logs.set_up(environ)
    for warning in options.warnings:
        logger.warning("%s", warning)
    for origin in options.origins:
        logger.info("%s", origin)
    python = lookup.python_program(environ)
    lookup.check_script(options, environ)
    config = _config(options, environ)
    program, *args = worker_command(options, python=python)
    result = run_agent(config, program, args=args, environ=environ)
    try:
        raise_for_failure(result, program, args=args)
    except ChildFailedError as report:
        print(report, file=sys.stderr)
        return _told(f"error: {_verdict(result.reason)}", result.exit_code)
    return result.exit_code


def _verdict(reason: str) -> str:
    """What the last line adds to the report above it: not the cause again, but why there was no restart."""
    _, mark, why = reason.rpartition("; ")
    return (
        f"the job has failed, as reported above; {why}"
        if mark and "--max-" in why
        else "the job has failed, as reported above"
    )


def _config(options: Options, environ: Mapping[str, str]) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=options.nnodes.minimum,
        max_nodes=options.nnodes.maximum,
        nproc_per_node=_worker_count(options, environ),
        run_id=options.rdzv_id or "",
        role=options.role,
        rdzv_endpoint=options.rdzv_endpoint,
        rdzv_backend=options.rdzv_backend,
        rdzv_configs=options.rdzv_conf,
        rdzv_timeout=-1 if options.rdzv_timeout is None else options.rdzv_timeout,
        max_restarts=options.max_restarts,
        monitor_interval=options.monitor_interval,
        start_method=options.start_method,
        log_line_prefix_template=options.log_line_prefix_template
        or environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        local_addr=options.local_addr,
        node_rank=options.node_rank,
        master_addr=options.master_addr,
        master_port=options.master_port,
        signals_to_handle=options.signals_to_handle,
        signals_to_pass_on=options.signals_to_pass_on,
        restart_backoff=options.restart_backoff,
        max_same_failures=options.max_same_failures,
        exit_barrier_timeout=options.exit_barrier_timeout,
        finish_timeout=options.finish_timeout,
        notice_timeout=options.notice_timeout,
        notice_signal=options.notice_signal,
        duplicate_stdout_filters=options.duplicate_stdout_filters,
        duplicate_stderr_filters=options.duplicate_stderr_filters,
        virtual_local_rank=options.virtual_local_rank,
        shutdown_timeout=options.shutdown_timeout,
        log_dir=options.log_dir,
        redirects=options.redirects,
        tee=options.tee,
        local_ranks_filter=options.local_ranks_filter,
        ranks_filter=options.ranks_filter,
        log_max_size=options.log_max_size,
        log_keep=options.log_keep,
        logs_specs=options.logs_specs,
        dump_stacks=options.dump_stacks,
        numa_options=NumaOptions(AffinityMode(options.numa_binding)) if options.numa_binding else None,
        devices=options.devices,
        devices_per_rank=options.devices_per_rank,
        device_variable=options.device_variable,
        event_log_handler=options.event_log_handler,
        instruments=InstrumentSettings(
            metrics_port=options.metrics_port,
            metrics_host=options.metrics_host,
            health_port=options.health_port,
            health_host=options.health_host,
            node_check=options.node_check,
            node_check_timeout=options.node_check_timeout,
            first_report_timeout=options.first_report_timeout,
            silence_timeout=options.silence_timeout,
            find_stragglers=not options.no_stragglers,
        ),
    )


def _worker_count(options: Options, environ: Mapping[str, str]) -> int:
    wanted = options.nproc_per_node
    if isinstance(wanted, int):
        return wanted
    available = None
    if wanted != "cpu":
        available = agent_devices(
            devices_wanted=options.devices, variable=options.device_variable, environ=environ
        )
    return devices.default_worker_count(
        wanted,
        cpus=machine.usable_cpus(),
        available=available,
        uncounted=available is None and machine.has_device_files(),
        per_rank=options.devices_per_rank or 1,
    )


def _answered(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever reads has seen enough
        return ExitCode.SUCCESS
    except OSError as error:
        return _told(f"error: the answer cannot be written: {error.strerror}", ExitCode.USAGE)
    return ExitCode.SUCCESS


def _told(message: str, code: int) -> int:
    print(f"elasticrun: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
