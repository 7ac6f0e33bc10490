"""Timers over files: for processes that share a directory, and need not share anything else.

    server = elastic.timer.FileTimerServer("/tmp/my-timers")
    server.start()
    # in a process that it started:
    elastic.timer.configure(elastic.timer.FileTimerClient("/tmp/my-timers"))

The two sides start in any order. A client that finds no server, or a dead one, works on, with one warning;
the server needs no client. torch's own FileTimerClient works with this server as well.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from .api import RequestQueue, TimerClient, TimerRequest, TimerServer
from .deadlines import Deadlines
from .mailbox import FileTimerRequest, Mailbox
from .slate import Slate
from .workers import StartedWorkers

__all__ = ["FileRequestQueue", "FileTimerClient", "FileTimerRequest", "FileTimerServer"]

LogEvent = Callable[[str, "FileTimerRequest | None"], None]


class FileTimerClient(TimerClient):
    """The client of the process that calls it, and of each child that is forked from it.

    `file_path` is the one that the server has. `signal` is what this process is to be ended with; zero or a
    negative number only has the server log that a deadline has passed.
    """

    def __init__(self, file_path: str | os.PathLike[str], signal: int = signal.SIGKILL) -> None:
        self._slate = Slate(file_path, signal=int(signal))

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self._slate.acquire(scope_id, expiration_time, max(0.0, expiration_time - time.monotonic()))

    def release(self, scope_id: str) -> None:
        self._slate.release(scope_id)

    def close(self) -> None:
        """End all deadlines. The client may be used again."""
        self._slate.close()


class FileRequestQueue(RequestQueue):
    """The requests in a mailbox. Open it before use, and close it."""

    def __init__(self, file_path: str | os.PathLike[str]) -> None:
        self._path = file_path
        self._mailbox: Mailbox | None = None

    @property
    def mailbox(self) -> Mailbox:
        """RuntimeError where it is not open."""
        if self._mailbox is None:
            raise RuntimeError(f"the timer server on {self._path} is not started; call start() first")
        return self._mailbox

    def open(self) -> None:
        """Raises OSError where the pipe cannot be made, or is somebody else's."""
        if self._mailbox is None:
            self._mailbox = Mailbox(self._path)

    def close(self) -> None:
        mailbox, self._mailbox = self._mailbox, None
        if mailbox is not None:
            mailbox.close()

    def size(self) -> int:
        return 0 if self._mailbox is None else int(bool(select.select([self._mailbox], [], [], 0)[0]))

    def get(self, size: int, timeout: float) -> list[FileTimerRequest]:  # type: ignore[override]  # noqa: ARG002
        """All that is there, however much: a slate holds one request, not a row of them."""
        select.select([self.mailbox], [], [], timeout)
        return self.mailbox.receive()

    def wake(self) -> None:
        if self._mailbox is not None:
            self._mailbox.wake()


class FileTimerServer(TimerServer):
    """Ends the processes whose deadlines pass, each with the signal that its client named.

    It ends only what this process started, itself or through others, and never itself: others are refused,
    with a warning. `log_event` is called in the server's thread with ``watchdog started``, ``timer expired``,
    ``kill worker process`` and ``watchdog stopped``, and the request where there is one. `start` makes the
    named pipe, and raises OSError where it cannot; `stop` removes it. `run_id` is not needed.
    """

    def __init__(
        self,
        file_path: str | os.PathLike[str],
        run_id: str = "",  # noqa: ARG002 - a documented place; what is logged says it already
        max_interval: float = 10,
        daemon: bool = True,
        log_event: LogEvent | None = None,
    ) -> None:
        self._queue = FileRequestQueue(file_path)
        super().__init__(self._queue, max_interval, daemon)
        self._log_event = log_event or (lambda _name, _request: None)
        self._deadlines: Deadlines[FileTimerRequest] = Deadlines()
        self._workers = StartedWorkers()

    def start(self) -> None:
        self._queue.open()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._queue.close()
        self._deadlines.clear_all()
        self._workers.keep(())

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        for request in timer_requests:
            if not isinstance(request, FileTimerRequest):
                raise TypeError(f"{request!r} does not name a signal: it must be a FileTimerRequest")
            if request.is_release or self._workers.admit(request.worker_pid):
                self._deadlines.register([request])
        self._workers.keep(self._deadlines.workers())

    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forget these processes, until they report again."""
        self._deadlines.clear(worker_ids)

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        return dict(self._deadlines.expired(deadline))

    def next_deadline(self) -> float | None:
        times = (self._deadlines.next(), self._queue.mailbox.next_look(time.monotonic()))
        return min((at for at in times if at is not None), default=None)

    def _run(self) -> None:
        self._log_event("watchdog started", None)
        super()._run()
        self._log_event("watchdog stopped", None)

    def _reap_worker(self, worker_id: Any) -> bool:
        request = self._deadlines.expired(time.monotonic())[worker_id][0]
        self._log_event("timer expired", request)
        if request.signal > 0:
            self._log_event("kill worker process", request)
            self._workers.end(worker_id, request.signal)
        return True
