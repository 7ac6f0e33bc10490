"""The error file: how a worker tells its agent what went wrong. The schema, its reader, its writer.

Written in the shape that torch's ``record`` writes, and read in that shape and in tensorplay's::

    {"message": {"message": "Type: text", "extraInfo": {"py_callstack": "...", "timestamp": "1718000000"}}}
    {"message": "Type('text')", "extraInfo": {"traceback": "...", "signal": null}}

A file that is missing, half-written or of an unknown shape is never an error here: whoever reads it is
busy with a failure already.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""Environment variable of a worker that names its error file."""


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """What an error file says.

    Args:
        message: The exception in one line or more.
        traceback: Its traceback, or empty.
        timestamp: When it was raised, in seconds since the epoch by the worker's clock; 0 if not known.
        data: The file's whole content.
    """

    message: str
    traceback: str = ""
    timestamp: int = 0
    data: dict[str, Any] = field(default_factory=dict)


def make_error_data(*, message: str, traceback: str, timestamp: int) -> dict[str, Any]:
    """Return the content of an error file."""
    extra = {"py_callstack": traceback, "timestamp": str(timestamp)}
    return {"message": {"message": message, "extraInfo": extra}}


def write_error_file(path: "str | os.PathLike[str]", data: Mapping[str, Any]) -> None:
    """Write an error file, whole or not at all. It replaces an older one.

    Raises:
        OSError: It can't be written.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=".error-", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(data, file, default=str)
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def read_error_file(path: "str | os.PathLike[str]") -> ErrorRecord | None:
    """Read an error file of either shape; None if there is none or it can't be understood."""
    try:
        data = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "message" not in data:
        return None
    body = data["message"]
    outer = data
    if isinstance(body, dict):
        outer, body = body, body.get("message", "")
    extra = outer.get("extraInfo")
    if not isinstance(extra, dict):
        extra = {}
    stamp = extra.get("timestamp", outer.get("timestamp"))
    try:
        timestamp = int(float(stamp)) if stamp is not None else _modified(path)
    except (TypeError, ValueError, OverflowError):
        timestamp = _modified(path)
    traceback = extra.get("py_callstack") or extra.get("traceback") or ""
    return ErrorRecord(message=str(body), traceback=str(traceback), timestamp=timestamp, data=data)


def _modified(path: "str | os.PathLike[str]") -> int:
    """The file's own time: it was written when the error was raised."""
    try:
        return int(Path(path).stat().st_mtime)
    except OSError:
        return 0
