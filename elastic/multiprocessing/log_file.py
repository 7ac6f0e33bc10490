"""One log on disk, which may be replaced by a fresh one when it has grown enough.

Only files that :class:`LogFile` wrote itself are ever removed: the oldest of the kept ones.
"""

import os
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a log is replaced, and how many old ones are kept, as ``<path>.1`` (the newest), ``<path>.2``, ...

    Args:
        max_bytes: A log is replaced at the end of the last line that fits into so many bytes. A line that is
            longer by itself is kept whole up to twice that.
        keep: Old logs to keep; at least 1.

    Raises:
        ValueError: One of them is too small.
    """

    max_bytes: int
    keep: int = 5

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.keep < 1:
            raise ValueError(
                f"a log can't be rotated at {self.max_bytes} bytes with {self.keep} old ones kept: "
                "give at least 1 for both"
            )


class LogFile:
    """An append-only file. It owns its descriptor until :meth:`close`.

    Raises:
        OSError: It can't be opened.
    """

    def __init__(self, path: str, rotation: Rotation | None = None) -> None:
        self._path = path
        self._rotation = rotation
        self._fd = open_log(path)
        self._size = os.fstat(self._fd).st_size
        self._is_at_line_start = True

    def write(self, data: bytes) -> None:
        """Append the bytes, replacing the file where that is due.

        Raises:
            OSError: They can't be written, or the file can't be replaced.
        """
        if self._rotation is not None:
            while self._size + len(data) > self._rotation.max_bytes:
                end = self._end_of_file(data, self._rotation.max_bytes)
                self._append(data[:end])
                data = data[end:]
                if not data:
                    return
                self._replace(self._rotation.keep)
        self._append(data)

    def close(self) -> None:
        """Close it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes) -> None:
        if data:
            write_all(self._fd, data)
            self._size += len(data)
            self._is_at_line_start = data.endswith(b"\n")

    def _end_of_file(self, data: bytes, limit: int) -> int:
        """How much of the data still goes into this file, which has no room for all of it."""
        room = max(limit - self._size, 0)
        end = data.rfind(b"\n", 0, room) + 1
        if end or (self._is_at_line_start and self._size):
            return end
        # A line that began in this file ends in it, unless it has no end.
        end = data.find(b"\n", room) + 1
        return min(end or len(data), 2 * limit - self._size)

    def _replace(self, keep: int) -> None:
        os.close(self._fd)
        self._fd = -1
        for number in range(keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")  # noqa: PTH105
        os.replace(self._path, f"{self._path}.1")  # noqa: PTH105 - text, as everywhere in this package
        self._fd = open_log(self._path)
        self._size = 0
        self._is_at_line_start = True


def open_log(path: str) -> int:
    """Open a log for appending and return the descriptor."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)


def write_all(fd: int, data: bytes) -> None:
    """Write everything to a file."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
