"""The documented names of this package, and the function to start with: :func:`start_processes`."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elastic.multiprocessing.affinity import NumaOptions
from elastic.multiprocessing.contexts import PContext, SubprocessContext
from elastic.multiprocessing.fork_context import ForkContext
from elastic.multiprocessing.function_context import MultiprocessContext
from elastic.multiprocessing.logs import DefaultLogsSpecs, LogsDest, LogsSpecs
from elastic.multiprocessing.redirects import Redirects, Std, Streams, to_map
from elastic.multiprocessing.results import RunProcsResult
from elastic.multiprocessing.signals import SignalException

__all__ = [
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "Redirects",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "start_processes",
    "to_map",
]

_KINDS = {"spawn": MultiprocessContext, "fork": ForkContext, "forkserver": ForkContext}


def start_processes(
    name: str,
    entrypoint: "str | Callable[..., Any]",
    args: "Mapping[int, Sequence[Any]] | Sequence[Any]",
    envs: Mapping[int, Mapping[str, str]],
    logs_specs: LogsSpecs | None = None,
    log_line_prefixes: Mapping[int, str] | None = None,
    start_method: str = "spawn",
    numa_options: NumaOptions | None = None,
    *,
    log_dir: "str | os.PathLike[str] | None" = None,
    redirects: Streams = Std.NONE,
    tee: Streams = Std.NONE,
    dump_stacks: bool = False,
    duplicate_stdout_filters: Sequence[str] | None = None,
    duplicate_stderr_filters: Sequence[str] | None = None,
) -> PContext:
    """Start one worker for each environment and return the context that owns them.

    The caller must end it, with ``wait()`` or ``close()``, or with ``stop()`` and ``advance()``. Should this
    process end first, in whatever way, the workers and all their descendants are ended too.

    Args:
        name: What the group is called in reports and in the default line prefix.
        entrypoint: A command to execute, or a function that another process can import by its name.
        args: The arguments by local rank, or one sequence for all workers.
        envs: The environment by local rank, on top of this process's own.
        logs_specs: Where output goes; by default a :class:`DefaultLogsSpecs` of ``log_dir``, ``redirects``
            and ``tee``, which without these keeps error files only, in a temporary directory.
        log_line_prefixes: What each teed line begins with, by local rank; by default
            ``[<name><local_rank>]:``.
        start_method: How a function is started: ``spawn``, in a fresh interpreter for each worker; ``fork``
            or ``forkserver``, both by forking from one fresh interpreter that has imported the
            function's module. They never copy this process, but make it a subreaper until the workers are
            born. No meaning for a command.
        numa_options: Which CPUs to bind workers to, before they run; by default none.
        log_dir: The directory for logs, instead of ``logs_specs``.
        redirects: Streams that go to files only, instead of ``logs_specs``.
        tee: Streams that go to files and to the console, instead of ``logs_specs``.
        dump_stacks: Whether workers that are stopped are asked for the stacks of their threads before;
            see :mod:`elastic.multiprocessing.stacks`.
        duplicate_stdout_filters: Teed lines that contain one of these also go to one file for all ranks.
        duplicate_stderr_filters: The same for stderr.

    Raises:
        TypeError: The entrypoint, ``envs`` or a value in an environment is of the wrong type.
        ValueError: ``args`` is a text, the local ranks aren't 0 to n-1, the start method is unknown, logs are
            set in two ways, or an argument or a variable is one that no process can have.
        pickle.PicklingError: The function or an argument can't be handed to another process.
        OSError: A worker can't be started. None is left then.
        RuntimeError: This system lacks something that is needed.
    """
    if isinstance(args, str):
        raise ValueError(
            f"args is the text {args!r}: give a sequence of arguments, or one for each local rank"
        )
    if isinstance(entrypoint, bytes | os.PathLike):
        raise TypeError(f"the entrypoint is {entrypoint!r}: give a command as a text, or a function")
    if not isinstance(envs, Mapping):
        raise TypeError("envs is no mapping: give the environment of each worker by its local rank")
    nprocs = len(envs)
    per_rank = dict(args) if isinstance(args, Mapping) else dict.fromkeys(range(nprocs), tuple(args))
    _check_ranks("envs", envs, nprocs)
    _check_ranks("args", per_rank, nprocs)
    _check_texts(per_rank, envs, is_command=isinstance(entrypoint, str))
    if start_method not in _KINDS:
        raise ValueError(f"the start method {start_method!r} is unknown: use one of {', '.join(_KINDS)}")
    kind: type[PContext] = SubprocessContext if isinstance(entrypoint, str) else _KINDS[start_method]
    context = kind(
        name,
        entrypoint,
        per_rank,
        envs,
        choose_logs_specs(logs_specs, log_dir=log_dir, redirects=redirects, tee=tee),
        log_line_prefixes,
        dump_stacks=dump_stacks,
        duplicate_stdout_filters=duplicate_stdout_filters,
        duplicate_stderr_filters=duplicate_stderr_filters,
        numa_options=numa_options,
    )
    context.start()
    return context


def choose_logs_specs(
    logs_specs: LogsSpecs | None,
    *,
    log_dir: "str | os.PathLike[str] | None",
    redirects: Streams,
    tee: Streams,
) -> LogsSpecs:
    """Return the logs specs that were given, or make those that the other settings describe.

    Raises:
        ValueError: There are both.
    """
    if logs_specs is None:
        return DefaultLogsSpecs(log_dir, redirects, tee)
    settings = {"log_dir": log_dir is not None, "redirects": redirects != Std.NONE, "tee": tee != Std.NONE}
    if any(settings.values()):
        rivals = ", ".join(name for name, is_given in settings.items() if is_given)
        raise ValueError(f"logs_specs and {rivals} set the same thing: keep one")
    return logs_specs


def _check_ranks(what: str, by_rank: Mapping[int, object], nprocs: int) -> None:
    if set(by_rank) != set(range(nprocs)):
        raise ValueError(
            f"the local ranks of {what} are {sorted(by_rank)}, but the workers are {list(range(nprocs))}: "
            "give one entry for each worker, counted from 0"
        )


def _check_texts(
    args: Mapping[int, Sequence[Any]], envs: Mapping[int, Mapping[str, Any]], *, is_command: bool
) -> None:
    """Refuse what the system would refuse without naming it."""
    for rank, env in envs.items():
        for name, value in env.items():
            where = f"the environment of local rank {rank} has {name!r}: {value!r}"
            if not isinstance(value, str):
                raise TypeError(f"{where}; give a text")
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{where}, which no process can have; leave out NUL, and '=' in names")
    for rank, arguments in args.items() if is_command else ():
        for argument in arguments:
            if "\0" in str(argument):
                raise ValueError(f"local rank {rank} has the argument {argument!r}: leave out NUL")
