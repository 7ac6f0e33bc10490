"""The one thread through which the output of all workers flows that isn't written straight to a file.

It reads the workers' pipes, writes each stream's bytes to its file as they are, and whole lines with a
prefix to the console. One writer, whole lines: no line is ever torn between two workers. A slow console
slows the workers down, as it would without us. A blocked one stops only workers whose output no file
holds; for the others, lines that it could not take are counted, told of later, and in the file.

The owner learns of progress from :meth:`OutputPump.fileno` and ends the thread with
:meth:`OutputPump.finish` and :meth:`OutputPump.join`. The thread touches nothing of its owner.
"""

import os
import select
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from elastic.multiprocessing.console import STALL_SECONDS, Console, is_same_file
from elastic.multiprocessing.log_file import open_log
from elastic.multiprocessing.streams import Stream, StreamPlan

GATHER_SECONDS = 0.010
"""After output came in small pieces, the next look at it waits so long: it then comes in one larger piece."""

_SMALL_BYTES = 256 * 1024
_MOST_LEFT = 1024 * 1024  # no pipe holds more than this at one time


class OutputPump:
    """Owns the pipes, the logs it writes and one thread. Start it when all workers have been started."""

    def __init__(self, plans: Sequence[StreamPlan]) -> None:
        self._lock = threading.Lock()
        self._to_drain: set[int] = set()
        self._drained: set[int] = set()
        self._finish_at: float | None = None
        self._is_done = False
        self._gathers = False
        self._filtered: dict[str, int] = {}
        self._consoles: dict[int, Console] = {}
        self._ranks = {plan.local_rank for plan in plans}
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._progress = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._eventfds = [self._wake, self._progress]
        self._streams = [self._open_stream(plan) for plan in plans]
        # A daemon only so that an owner which forgets it can still exit; the owner joins it.
        self._thread = threading.Thread(target=self._run, name="elastic-output", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable after a rank was drained or the pump is done, until :meth:`acknowledge`."""
        return self._progress

    def acknowledge(self) -> None:
        """Make :meth:`fileno` unreadable until there is more progress."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._progress)

    def drain(self, local_rank: int) -> None:
        """Ask for all that a worker wrote before now. Call it when the worker has ended."""
        with self._lock:
            self._to_drain.add(local_rank)
        os.eventfd_write(self._wake, 1)

    def is_drained(self, local_rank: int) -> bool:
        """Whether all that the worker wrote before :meth:`drain` is in its file and was shown or queued."""
        with self._lock:
            return self._is_done or local_rank in self._drained or local_rank not in self._ranks

    def finish(self, seconds: float) -> None:
        """Ask for the end: take what is in the pipes and show it, giving a blocked console so long."""
        with self._lock:
            if self._finish_at is None:
                self._finish_at = time.monotonic() + seconds
        os.eventfd_write(self._wake, 1)

    @property
    def is_done(self) -> bool:
        """Whether the thread has nothing left to do."""
        with self._lock:
            return self._is_done

    def join(self, timeout: float) -> bool:
        """Wait for the thread after :meth:`finish`; False if a file system keeps it from ending."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        while self._eventfds:
            os.close(self._eventfds.pop())
        return True

    def tail(self, local_rank: int) -> tuple[str, ...]:
        """The last lines of a worker's stream that keeps them; call it once the worker is drained."""
        for stream in self._streams:
            if stream.plan.local_rank == local_rank and stream.plan.keeps_tail:
                return stream.last_lines()
        return ()

    def _open_stream(self, plan: StreamPlan) -> Stream:
        # Two descriptors of one place share one queue, or their lines would tear each other.
        fd = 1 if plan.console == 2 and is_same_file(1, 2) else plan.console
        if fd not in self._consoles:
            self._consoles[fd] = Console(fd)
        filtered = None
        if plan.filters and plan.filtered_path:
            if plan.filtered_path not in self._filtered:
                self._filtered[plan.filtered_path] = open_log(plan.filtered_path)
            filtered = self._filtered[plan.filtered_path]
        return Stream(plan, self._consoles[fd], filtered)

    def _run(self) -> None:
        try:
            while not self._turn():
                pass
        finally:
            for stream in self._streams:
                stream.close()
            for console in self._consoles.values():
                console.close()
            for fd in self._filtered.values():
                os.close(fd)
            with self._lock:
                self._is_done = True
            os.eventfd_write(self._progress, 1)

    def _turn(self) -> bool:
        """Wait for something to do and do it. Return whether it was the last turn."""
        with self._lock:
            to_drain, self._to_drain = self._to_drain, set()
            finish_at = self._finish_at
        if finish_at is not None:
            return self._end(finish_at)
        self._drain(to_drain)
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._gathers:
            self._gathers = False
            if poll.poll(GATHER_SECONDS * 1000):  # the owner wants something
                os.eventfd_read(self._wake)
                return False
        by_fd = {stream.fd: stream for stream in self._streams if stream.is_wanted}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        for console in self._consoles.values():
            if not console.is_empty:
                poll.register(console.fileno(), select.POLLOUT)
        moved = 0
        for fd, _ in poll.poll(self._timeout_ms()):
            if fd == self._wake:
                os.eventfd_read(self._wake)
            elif fd in by_fd:
                moved += by_fd[fd].read()
                self._write_consoles()
        self._gathers = 0 < moved < _SMALL_BYTES
        now = time.monotonic()
        for stream in self._streams:
            stream.show_update(now)
        self._write_consoles()
        return False

    def _timeout_ms(self) -> float | None:
        due = [stream.update_at for stream in self._streams if stream.has_update]
        if any(console.is_full and not console.is_blocked for console in self._consoles.values()):
            due.append(time.monotonic() + STALL_SECONDS)
        return max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    def _drain(self, local_ranks: Iterable[int]) -> None:
        ranks = set(local_ranks)
        if not ranks:
            return
        for stream in self._streams:
            if stream.plan.local_rank in ranks:
                # What the worker wrote is in the pipe by now. Its end may never come: a process that
                # the worker left behind keeps the pipe open, and may even go on writing.
                stream.read(_MOST_LEFT)
                stream.flush()
        self._write_consoles()
        with self._lock:
            self._drained |= ranks
        os.eventfd_write(self._progress, 1)

    def _end(self, finish_at: float) -> bool:
        for stream in self._streams:
            if stream.is_open:
                stream.read(_MOST_LEFT)
                stream.flush()
                stream.close_pipe()
        self._write_consoles()
        waiting = [console for console in self._consoles.values() if not console.is_empty]
        left = finish_at - time.monotonic()
        if not waiting or left <= 0:
            return True
        poll = select.poll()
        for console in waiting:
            poll.register(console.fileno(), select.POLLOUT)
        poll.poll(left * 1000)
        return False

    def _write_consoles(self) -> None:
        for console in self._consoles.values():
            console.write(time.monotonic())
