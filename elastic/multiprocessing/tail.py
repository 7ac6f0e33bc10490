"""The last lines of a stream, for a report. It reads the end of a file and never the whole."""

import os
from pathlib import Path

TAIL_BYTES = 16 * 1024
"""How much of the end of a stream is looked at."""

TAIL_LINES = 30
"""How many lines of it are kept."""


def last_lines(data: bytes, *, is_cut: bool = False) -> tuple[str, ...]:
    """Return the last lines of some bytes as text; ``is_cut``: the first line lacks its beginning."""
    # Only the last state of a progress bar is of interest.
    lines = [line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n")]
    if is_cut and len(lines) > 1:
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines.pop()
    return tuple(line.replace(b"\0", b"").decode("utf-8", "replace") for line in lines[-TAIL_LINES:])


def read_last_lines(path: str) -> tuple[str, ...]:
    """Return the last lines of a file; nothing if it can't be read."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return last_lines(file.read(TAIL_BYTES), is_cut=size > TAIL_BYTES)
    except OSError:
        return ()
