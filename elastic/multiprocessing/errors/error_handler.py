"""Writes a worker's error file. Used inside the worker, by ``record``.

It never lets its own trouble hide the error that it was asked to record.
"""

import faulthandler
import json
import logging
import os
import shutil
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from elastic.multiprocessing.errors.error_file import ERROR_FILE_VARIABLE, make_error_data, write_error_file

logger = logging.getLogger(__name__)


class ErrorHandler:
    """Records exceptions in an error file. Subclass it to record more.

    Args:
        error_file: Where to write. None means the file that the launcher named in the environment; if it
            named none, nothing is written.
    """

    def __init__(self, error_file: "str | os.PathLike[str] | None" = None) -> None:
        self._error_file = None if error_file is None else os.fspath(error_file)

    def initialize(self) -> None:
        """Prepare this process: a fatal signal prints the stacks of all threads to stderr."""
        # A process without a usable stderr has nowhere to print them; that isn't the user's error.
        try:
            faulthandler.enable(all_threads=True)
        except (AttributeError, OSError, RuntimeError, ValueError) as error:
            logger.warning("stacks will not be printed on a fatal signal: %s", error)

    def record_exception(self, e: BaseException) -> None:
        """Write an exception and its traceback to the error file, replacing what it held."""
        stack = "".join(traceback.format_exception(type(e), e, _skip_own_frames(e.__traceback__)))
        data = make_error_data(
            message=f"{type(e).__name__}: {e}", traceback=stack, timestamp=int(time.time())
        )
        self._write(data)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Copy the error file of a root cause to this process's own error file.

        Args:
            rootcause_error_file: The file to copy. One that can't be parsed is copied as it is.
            error_code: Added to the copy as ``errorCode``, unless 0.
        """
        try:
            data = json.loads(Path(rootcause_error_file).read_bytes())
        except (OSError, ValueError) as error:
            logger.warning("the error file %s can't be read: %s", rootcause_error_file, error)
            self._copy(rootcause_error_file)
            return
        if error_code and isinstance(data, dict):
            self.override_error_code_in_rootcause_data(rootcause_error_file, data, error_code)
        self._write(data)

    def override_error_code_in_rootcause_data(
        self,
        rootcause_error_file: str,  # noqa: ARG002 - torch's signature: subclasses get the path too
        rootcause_error: dict[str, Any],
        error_code: int = 0,
    ) -> None:
        """Put the exit code into the content of a root cause's error file, in place."""
        message = rootcause_error.get("message")
        target = message if isinstance(message, dict) else rootcause_error
        target["errorCode"] = error_code

    def _target(self) -> str | None:
        return self._error_file or os.environ.get(ERROR_FILE_VARIABLE) or None

    def _write(self, data: Any) -> None:
        target = self._target()
        if target is None:
            return
        try:
            write_error_file(target, data)
        except OSError as error:
            logger.warning("the error file %s can't be written: %s", target, error)

    def _copy(self, source: str) -> None:
        target = self._target()
        if (
            target is None
            or not Path(source).is_file()
            or os.path.realpath(source) == os.path.realpath(target)
        ):
            return
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            logger.warning("the error file %s can't be written: %s", target, error)


def _skip_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is the user's: it begins where our wrappers called the user's code."""
    own = __name__.partition(".errors.")[0]
    start = trace
    while start is not None and str(start.tb_frame.f_globals.get("__name__")).startswith(f"{own}."):
        start = start.tb_next
    return trace if start is None else start


def get_error_handler() -> ErrorHandler:
    """Return a new handler that writes where the launcher said."""
    return ErrorHandler()
