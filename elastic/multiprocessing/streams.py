"""One stream of one worker on its way from a pipe to a file and to the console.

It never waits: it moves what is there. :mod:`elastic.multiprocessing.pump` decides when.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from elastic.multiprocessing.console import Console
from elastic.multiprocessing.lines import LineAssembler
from elastic.multiprocessing.log_file import LogFile, Rotation, write_all
from elastic.multiprocessing.tail import TAIL_BYTES, last_lines

UPDATE_SECONDS = 1.0
"""A progress bar (carriage returns) of one stream is shown at most once in this time."""

PIPE_BYTES = 256 * 1024
"""How much a pipe should hold."""

_READ = 64 * 1024  # at once: what is read, and what is made of it, stays in the processor's cache


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Where the bytes of one worker's stream go.

    Args:
        local_rank: Which worker.
        read_end: The pipe's end to read from; it becomes the pump's.
        console: The descriptor to show it on, 1 or 2.
        path: The file that keeps everything; empty for none, and then the bytes are shown as they are,
            without a prefix.
        is_shown: Whether the console gets it too.
        rotation: When ``path`` is replaced by a fresh file; None: never.
        prefix: What each shown line begins with.
        filters: Lines that contain one of these also go to ``filtered_path``.
        filtered_path: One file for all workers.
        keeps_tail: Whether the last lines are kept for :meth:`OutputPump.tail`.
    """

    local_rank: int
    read_end: int
    console: int
    path: str = ""
    is_shown: bool = True
    rotation: Rotation | None = None
    prefix: str = ""
    filters: tuple[str, ...] = ()
    filtered_path: str = ""
    keeps_tail: bool = False


class Stream:
    """One pipe with what hangs on it. It owns the pipe's end and its file, until :meth:`close`."""

    def __init__(self, plan: StreamPlan, console: Console, filtered: int | None) -> None:
        self.plan = plan
        self.console = console
        self.fd = plan.read_end
        self.lines = LineAssembler()
        self.tail = bytearray()
        self.update_at = 0.0
        self.has_update = False
        self._prefix = plan.prefix.encode("utf-8", "surrogateescape")
        self._filters = [text.encode("utf-8", "surrogateescape") for text in plan.filters]
        self._filtered = filtered
        os.set_blocking(self.fd, False)
        self._file = LogFile(plan.path, plan.rotation) if plan.path else None

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return self.fd >= 0

    @property
    def has_file(self) -> bool:
        """Whether a file keeps what the console may miss."""
        return self._file is not None and self.plan.path != os.devnull

    @property
    def is_wanted(self) -> bool:
        """Whether to read on, as far as the console is concerned."""
        if not self.plan.is_shown:
            return self.is_open
        return self.is_open and (not self.console.is_full or (self.console.is_blocked and self.has_file))

    def read(self, most: int = PIPE_BYTES) -> int:
        """Move what is there, at most about ``most`` bytes. Return how much was moved."""
        moved = 0
        while self.is_open and moved < most:
            try:
                data = os.read(self.fd, _READ)
            except BlockingIOError:
                break
            if not data:
                self.flush()
                self.close_pipe()
                break
            moved += len(data)
            self._deliver(data)
        return moved

    def last_lines(self) -> tuple[str, ...]:
        """The last lines that came, if they are kept."""
        return last_lines(bytes(self.tail), is_cut=len(self.tail) == TAIL_BYTES)

    def show_update(self, now: float) -> None:
        """Show how an unfinished line looks, not too often."""
        if self.has_update and now >= self.update_at:
            self.has_update = False
            text = self.lines.take_update()
            if text is not None:
                self.update_at = now + UPDATE_SECONDS
                self._show(text)

    def flush(self) -> None:
        """Show the unfinished line as it is."""
        self.has_update = False
        text = self.lines.flush()
        if text is not None:
            self._show(text)

    def close_pipe(self) -> None:
        """Read no more; whoever still writes is told so by a signal."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Close the pipe and the file."""
        self.close_pipe()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _deliver(self, data: bytes) -> None:
        if self.plan.keeps_tail:
            self.tail += data[-TAIL_BYTES:]
            del self.tail[:-TAIL_BYTES]
        if not self.plan.path:
            self.console.put(data)
            return
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError as error:  # a full disk must not end the training
                self._file.close()
                self._file = None
                self._show(f"[{self.plan.path} is not written any further: {error.strerror}]".encode())
        if not self.plan.is_shown:
            return
        if self._filtered is None:
            self._put(self.lines.feed_block(data, self._prefix))
        else:
            for line in self.lines.feed(data):
                self._show(line)
        self.has_update = b"\r" in data or self.has_update

    def _show(self, line: bytes) -> None:
        whole = self._prefix + line + b"\n"
        if self._filtered is not None and any(text in line for text in self._filters):
            with suppress(OSError):
                write_all(self._filtered, whole)
        self._put([whole])

    def _put(self, lines: Iterable[bytes | memoryview]) -> None:
        if self.has_file:
            self.console.put_lines(lines, kept_in=self.plan.path)
        else:
            for piece in lines:
                self.console.put(piece)
