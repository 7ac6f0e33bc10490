"""Worker processes: started, watched, stopped to the last descendant, with their output and their errors.

Start with :func:`start_processes`. The layers, from values to processes: ``redirects``, ``affinity``,
``lines`` and ``results`` are pure; ``logs``, ``log_file``, ``console``, ``tail``, ``topology``, ``workers``,
``notify``, ``stacks`` and ``subreaper`` each touch one thing; ``pump`` is a thread over them; ``contexts``
joins it all, with :mod:`elastic.utils.ending` to end it. ``function_worker``, ``fork_server`` and
``stack_signal`` run inside workers.
"""

from elastic.multiprocessing.affinity import AffinityMode, NumaOptions
from elastic.multiprocessing.api import (
    DefaultLogsSpecs,
    LogsDest,
    LogsSpecs,
    MultiprocessContext,
    PContext,
    Redirects,
    RunProcsResult,
    SignalException,
    Std,
    SubprocessContext,
    start_processes,
    to_map,
)
from elastic.multiprocessing.errors import (
    ChildFailedError,
    ErrorHandler,
    ProcessFailure,
    exit_code_for,
    record,
)
from elastic.multiprocessing.stack_signal import register_stack_dump
from elastic.multiprocessing.subreaper import become_subreaper

__all__ = [
    "AffinityMode",
    "ChildFailedError",
    "DefaultLogsSpecs",
    "ErrorHandler",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "NumaOptions",
    "PContext",
    "ProcessFailure",
    "Redirects",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "become_subreaper",
    "exit_code_for",
    "record",
    "register_stack_dump",
    "start_processes",
    "to_map",
]
