"""The timer contract: a worker has a deadline for what it does, and a server elsewhere enforces it.

A block that is stuck cannot raise, so :func:`expires` tells a server of its deadline through a
:class:`TimerClient`, and the server ends the worker once the deadline has passed. A block that ends by
itself, but late, raises TimeoutError. Deadlines are seconds of the monotonic clock, which all processes
of a machine share, and which nobody sets.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

log = logging.getLogger("elastic.timer")

RELEASE = -1.0
"""The expiration time of a request that ends a deadline."""

_MOST_REQUESTS = 10_000  # that the server takes at once before it looks at its deadlines again
_JOIN_SECONDS = 5.0  # what the server's thread may need beyond a wait that cannot be cut short


class TimerRequest:
    """A worker asks for a deadline, or ends one.

    `expiration_time` is in seconds of the monotonic clock; a negative one ends the deadline that the worker
    has for the scope. `scope` and `expire_time` are other names for `scope_id` and `expiration_time`; a
    `datetime` is translated to the monotonic clock. TypeError where one of the three is missing.
    """

    __slots__ = ("expiration_time", "scope_id", "worker_id")

    def __init__(
        self,
        worker_id: Any,
        scope_id: str | None = None,
        expiration_time: float | datetime | None = None,
        *,
        scope: str | None = None,
        expire_time: float | datetime | None = None,
    ) -> None:
        scope_id = scope if scope_id is None else scope_id
        at = expire_time if expiration_time is None else expiration_time
        if scope_id is None or at is None:
            raise TypeError("a TimerRequest needs a worker_id, a scope_id and an expiration_time")
        self.worker_id = worker_id
        self.scope_id = scope_id
        self.expiration_time = monotonic_time(at) if isinstance(at, datetime) else at

    @property
    def scope(self) -> str:
        return self.scope_id

    @property
    def expire_time(self) -> datetime:
        """When it is due by the wall clock, as that stands now."""
        return datetime.fromtimestamp(time.time() + self.expiration_time - time.monotonic()).astimezone()

    @property
    def is_release(self) -> bool:
        """Whether it ends a deadline."""
        return self.expiration_time < 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimerRequest):
            return NotImplemented
        return (self.worker_id, self.scope_id, self.expiration_time) == (
            other.worker_id,
            other.scope_id,
            other.expiration_time,
        )

    def __hash__(self) -> int:
        return hash((self.worker_id, self.scope_id, self.expiration_time))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.worker_id!r}, {self.scope_id!r}, {self.expiration_time!r})"


def monotonic_time(at: datetime) -> float:
    """That moment of the wall clock, as the monotonic clock will show it. Never negative."""
    return max(0.0, time.monotonic() + at.timestamp() - time.time())


class TimerClient(ABC):
    """The worker's side. Neither call blocks for a server, nor raises because there is none."""

    @abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Have a deadline for `scope_id`, in seconds of the monotonic clock."""

    @abstractmethod
    def release(self, scope_id: str) -> None:
        """End the deadline for `scope_id`. There need not be one."""

    def start_timer(self, request: TimerRequest) -> None:
        """Do what the request says, as this process: its `worker_id` is not looked at."""
        if request.is_release:
            self.release(request.scope_id)
        else:
            self.acquire(request.scope_id, request.expiration_time)

    def acquire_scope(self, scope: str, expiration_time: datetime) -> None:
        """As `acquire`, with a moment of the wall clock."""
        self.acquire(scope, monotonic_time(expiration_time))

    def cancel_scope(self, scope: str) -> None:
        """As `release`."""
        self.release(scope)


class RequestQueue(ABC):
    """Where a server gets its requests from."""

    @abstractmethod
    def size(self) -> int:
        """About how many requests wait."""

    @abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests that are there; where there is none, wait up to `timeout` seconds for one."""

    def wake(self) -> None:  # noqa: B027 - a queue need not be able to
        """End a `get` that another thread waits in. By default it ends when its time is over."""


class TimerServer(ABC):
    """The side that enforces deadlines, in a thread of its own.

    The thread sleeps until a request comes or a deadline passes, and at most `max_interval` seconds. A
    `daemon` thread does not keep the process from ending. `start` and `stop` may be called again, in turn.
    """

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        if not max_interval > 0:
            raise ValueError(f"max_interval is {max_interval}: it must be a positive number of seconds")
        self._request_queue = request_queue
        self._max_interval = max_interval
        self._daemon = daemon
        self._thread: threading.Thread | None = None
        self._is_stopping = threading.Event()
        self._must_pause = False

    @abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Open and end deadlines, in the order of the requests."""

    @abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forget all deadlines of these workers."""

    @abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """What is due at that monotonic time or before, by worker."""

    @abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End the worker. Whether it is ended; it must not block."""

    def next_deadline(self) -> float | None:
        """When to look again at the latest, in monotonic seconds. Default: only after `max_interval`."""
        return None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. RuntimeError if it runs."""
        if self._thread is not None:
            raise RuntimeError("the timer server is running already; call stop() first")
        self._is_stopping.clear()
        self._thread = threading.Thread(target=self._run, name="elastic-timer", daemon=self._daemon)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for that; what has not expired never will. Nothing, where none runs."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._is_stopping.set()
        self._request_queue.wake()
        if thread is not threading.current_thread():
            thread.join(self._max_interval + _JOIN_SECONDS)

    def run_once(self, timeout: float = 0.0) -> None:
        """Take the requests, waiting for them up to `timeout` seconds, and end workers that are overdue."""
        requests = self._request_queue.get(_MOST_REQUESTS, timeout)
        self.register_timers(requests)
        if len(requests) >= _MOST_REQUESTS:
            return  # among those that still wait there may be the release of one that looks overdue
        self._must_pause = False
        for worker_id, expired in self.get_expired_timers(time.monotonic()).items():
            scopes = ", ".join(repr(request.scope_id) for request in expired)
            log.error("worker %s is overdue: the deadline for %s has passed", worker_id, scopes)
            if self._reap_worker_no_throw(worker_id):
                self.clear_timers({worker_id})
            else:
                self._must_pause = True

    def _reap_worker_no_throw(self, worker_id: Any) -> bool:
        """`_reap_worker`, whose errors must not end the watch over the other workers."""
        try:
            return self._reap_worker(worker_id)
        except Exception:
            log.exception("cannot end worker %s; trying again in %g s", worker_id, self._max_interval)
            return False

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self.run_once(self._patience())

    def _patience(self) -> float:
        due = self.next_deadline()
        if due is None or self._must_pause:
            return self._max_interval
        return min(self._max_interval, max(0.0, due - time.monotonic()))


class _Configured:
    """The client of this process."""

    client: TimerClient | None = None


def configure(timer_client: TimerClient | None) -> None:
    """Make this the client of every `expires` in this process that names none; None: there is none again."""
    _Configured.client = timer_client


def expires(
    after: float | timedelta, scope: str | None = None, client: TimerClient | None = None
) -> AbstractContextManager[None]:
    """Have the block end within `after` (seconds, or a timedelta), or this process be ended.

    The server that `client` speaks to ends the process when the block is still running then. A block that
    ends late all the same raises TimeoutError; an exception of its own goes on as it is. `scope` names the
    block in what is logged (default: file and line); `client` is by default the configured one.
    RuntimeError where there is no client, ValueError where `after` is not a positive time.
    """
    client = client or _Configured.client
    if client is None:
        raise RuntimeError("there is no timer client: call elastic.timer.configure(...), or pass client=")
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if not 0 < seconds < math.inf:
        raise ValueError(f"after is {after!r}: it must be a positive time")
    if scope is None:
        scope = place_of_caller()
    return _deadline(client, scope, seconds)


def place_of_caller() -> str:
    """File and line from where the function was called that asks this."""
    caller = sys._getframe(2)
    return f"{PurePath(caller.f_code.co_filename).name}#{caller.f_lineno}"


@contextmanager
def _deadline(client: TimerClient, scope: str, seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    client.acquire(scope, deadline)
    try:
        yield
    finally:
        client.release(scope)
    late = time.monotonic() - deadline
    if late > 0:
        raise TimeoutError(f"{scope!r} took {seconds + late:.3g} s; its deadline was {seconds:g} s")
