"""Timers over a `multiprocessing` queue: for a program that starts its own processes.

    queue = multiprocessing.get_context("spawn").Queue()
    server = elastic.timer.LocalTimerServer(queue)
    server.start()
    process = context.Process(target=train, args=(queue,))   # in it: configure(LocalTimerClient(queue))

Leave the queue without a bound. Such a queue has locks that its processes share, so one that is killed in the
middle of a request can leave the others without a server; the agent itself therefore uses the timers of
:mod:`elastic.timer.file_based_local_timer`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import weakref
from multiprocessing import connection
from typing import Any

from .api import RELEASE, RequestQueue, TimerClient, TimerRequest, TimerServer
from .deadlines import Deadlines
from .workers import StartedWorkers

__all__ = ["LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"]

log = logging.getLogger("elastic.timer")

GRACE_SECONDS = 0.2
"""How long after a deadline the server still waits: a release that was in time may be on its way."""


class LocalTimerClient(TimerClient):
    """The client of the process that calls it. `mp_queue` is the queue that the server reads."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue
        self._has_warned = False

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self._send(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        self._send(TimerRequest(os.getpid(), scope_id, RELEASE))

    def _send(self, request: TimerRequest) -> None:
        try:
            self._queue.put(request, block=False)
        except (queue.Full, OSError, ValueError) as e:  # ValueError: it is closed
            if not self._has_warned:
                self._has_warned = True
                log.warning("the timer queue takes no requests (%r); the work goes on, this is said once", e)


class MultiprocessingRequestQueue(RequestQueue):
    """The requests in a `multiprocessing.Queue`, for one server in this process."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._bell)

    def size(self) -> int:
        return int(self._queue.qsize())

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        # The queue's own get cannot be woken by anything else than a request.
        connection.wait([self._queue._reader, self._bell], timeout)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        requests: list[TimerRequest] = []
        while len(requests) < size:
            try:
                request = self._queue.get(block=False)
            except queue.Empty:
                break
            if isinstance(request, TimerRequest):
                requests.append(request)
            else:
                log.warning("%r is no TimerRequest and is ignored", type(request).__name__)
        return requests

    def put(self, request: TimerRequest) -> None:
        """Add a request, as a client does."""
        self._queue.put(request)

    def wake(self) -> None:
        os.eventfd_write(self._bell, 1)


class LocalTimerServer(TimerServer):
    """Kills the processes whose deadlines pass. A worker's id is its process id.

    It ends only what this process started, itself or through others, and never itself: other requests are
    refused, with a warning. `max_interval` is in seconds.
    """

    def __init__(self, mp_queue: Any, max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._deadlines: Deadlines[TimerRequest] = Deadlines()
        self._workers = StartedWorkers()

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        self._deadlines.register(
            r for r in timer_requests if r.is_release or self._workers.admit(r.worker_id)
        )
        self._workers.keep(self._deadlines.workers())

    def clear_timers(self, worker_ids: set[Any]) -> None:
        self._deadlines.clear(worker_ids)
        self._workers.keep(self._deadlines.workers())

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        return self._deadlines.expired(deadline - GRACE_SECONDS)

    def next_deadline(self) -> float | None:
        due = self._deadlines.next()
        return None if due is None else due + GRACE_SECONDS

    def _reap_worker(self, worker_id: Any) -> bool:
        self._workers.end(worker_id, signal.SIGKILL)
        return True
