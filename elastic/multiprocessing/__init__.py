"""Worker processes: started, watched, stopped to the last descendant, with their output and their errors.

Start with :func:`start_processes`. The layers, from values to processes: ``redirects``, ``escalation``,
``lines`` and ``results`` are pure; ``logs``, ``console``, ``tail``, ``workers``, ``subreaper`` and
``stopping`` each touch one thing; ``pump`` is a thread over them; ``contexts`` joins it all.
"""

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
from elastic.multiprocessing.subreaper import become_subreaper

__all__ = [
    "ChildFailedError",
    "DefaultLogsSpecs",
    "ErrorHandler",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
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
    "start_processes",
    "to_map",
]
