"""How the failure of a worker is written down, read, ordered and reported.

Start with :func:`record` (in the worker) and :class:`ChildFailedError` (in the launcher).
"""

from elastic.multiprocessing.errors.child_failed import ChildFailedError
from elastic.multiprocessing.errors.error_file import ErrorRecord, read_error_file
from elastic.multiprocessing.errors.error_handler import ErrorHandler, get_error_handler
from elastic.multiprocessing.errors.failures import ProcessFailure, exit_code_for
from elastic.multiprocessing.errors.record import record

__all__ = [
    "ChildFailedError",
    "ErrorHandler",
    "ErrorRecord",
    "ProcessFailure",
    "exit_code_for",
    "get_error_handler",
    "read_error_file",
    "record",
]
