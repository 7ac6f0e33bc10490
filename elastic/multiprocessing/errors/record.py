"""The decorator for a worker's entry point that tells the launcher why the worker failed."""

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

from elastic.multiprocessing.errors.child_failed import ChildFailedError
from elastic.multiprocessing.errors.error_handler import ErrorHandler
from elastic.multiprocessing.errors.failures import NO_ERROR_FILE
from elastic.multiprocessing.stack_signal import register_stack_dump

P = ParamSpec("P")
R = TypeVar("R")


@overload
def record(
    fn: Callable[P, R],
    error_handler: ErrorHandler | None = None,
    *,
    error_file: "str | os.PathLike[str] | None" = None,
) -> Callable[P, R | None]: ...


@overload
def record(
    fn: None = None,
    error_handler: ErrorHandler | None = None,
    *,
    error_file: "str | os.PathLike[str] | None" = None,
) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...


def record(
    fn: Callable[P, R] | None = None,
    error_handler: ErrorHandler | None = None,
    *,
    error_file: "str | os.PathLike[str] | None" = None,
) -> Callable[P, R | None] | Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Decorate an entry point so that an exception that leaves it is written to the error file.

    While it runs, the launcher can have the stacks of this process, if it was told to keep them
    (``--dump-stacks``).

    The exception goes on unchanged. ``SystemExit`` and ``KeyboardInterrupt`` are no errors, and an exit
    with code 0 makes the function return None. For a :class:`ChildFailedError` the error file of the root
    cause is copied, so that it reaches the outermost launcher.

    Args:
        fn: The entry point; without it, returns a decorator.
        error_handler: What writes the file.
        error_file: Where to write instead of where the launcher said; not together with
            ``error_handler``.

    Raises:
        ValueError: Both ``error_handler`` and ``error_file`` are given.
    """
    if error_handler is not None and error_file is not None:
        raise ValueError("record() takes an error_handler or an error_file, not both: the handler has a file")
    handler = error_handler or ErrorHandler(error_file)

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        @functools.wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            handler.initialize()
            register_stack_dump()
            try:
                return function(*args, **kwargs)
            except SystemExit as stop:
                if stop.code in {None, 0}:
                    return None
                raise
            except ChildFailedError as error:
                _, failure = error.get_first_failure()
                if failure.error_file != NO_ERROR_FILE and failure.error_file_data:
                    handler.dump_error_file(failure.error_file, failure.exitcode)
                else:
                    handler.record_exception(error)
                raise
            except Exception as error:
                handler.record_exception(error)
                raise

        return recorded

    return decorate if fn is None else decorate(fn)
