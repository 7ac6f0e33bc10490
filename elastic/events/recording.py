"""The recorder of this process: from the name of a destination to the outlet that serves it.

`record` costs the caller a look-up and an entry in a queue. What is queued when the process ends is handed
over then, for `EXIT_TIMEOUT` at most; a process that ends without Python's exit handlers calls `close`.
A forked child starts with a recorder of its own, and nothing of what its parent had queued.
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading
import time
import traceback
from dataclasses import replace

from elastic.events.api import Event, NodeState, RdzvEvent
from elastic.events.handlers import EventHandler, as_event_handler, create_event_handler
from elastic.events.outlet import Outlet

log = logging.getLogger("elastic.events")

RDZV = "dynamic_rendezvous"
"""The destination of rendezvous events. They are dropped until a handler is registered for it.

``register_event_handler("dynamic_rendezvous", handler)`` does that.
"""
EXIT_TIMEOUT = 2.0
"""Seconds that queued events may take when the process ends."""


class Recorder:
    """Outlets by destination, each opened when it is first asked for. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        # None stands for a destination that drops everything.
        self._outlets: dict[str, Outlet | None] = {"null": None, RDZV: None}

    def register(self, destination: str, handler: EventHandler) -> None:
        """Serve a destination by `handler` from now on; the one before it is closed."""
        if not destination:
            raise ValueError("a destination of events needs a name")
        with self._lock:
            before = self._outlets.get(destination)
            self._outlets[destination] = Outlet(destination, handler)
        if before is not None:
            before.close(EXIT_TIMEOUT)

    def open(self, destination: str) -> Outlet | None:
        """The outlet of a destination, None if all is dropped; raises as `create_event_handler`."""
        with self._lock:
            if destination not in self._outlets:
                self._outlets[destination] = Outlet(destination, create_event_handler(destination))
            return self._outlets[destination]

    def put(self, event: Event | RdzvEvent, destination: str) -> None:
        """Queue an event. ValueError for an unknown destination; one that can't be used is told of once."""
        if not callable(getattr(event, "serialize", None)):  # the peers' own events have it too
            raise TypeError(f"{event!r} is no event: make one by elastic.events.Event(name, source)")
        if self._over:
            log.warning("the event %r comes too late: this process is ending", event.name)
            return
        try:
            outlets = self._outlets  # another thread may put a new one in its place
            outlet = outlets[destination] if destination in outlets else self.open(destination)
        except (RuntimeError, OSError) as error:
            log.warning("events for %r are dropped: %s", destination, error)
            with self._lock:
                self._outlets[destination] = outlet = None
        if outlet is not None:
            # A copy: the caller may go on and change the event.
            outlet.put(
                replace(event, metadata=dict(event.metadata)) if isinstance(event, Event) else replace(event)
            )

    def flush(self, timeout: float) -> bool:
        """Wait for all outlets together."""
        deadline = time.monotonic() + timeout
        outlets = [outlet for outlet in list(self._outlets.values()) if outlet is not None]
        # Each is asked, also after one that was too slow.
        flushed = [outlet.flush(max(0.0, deadline - time.monotonic())) for outlet in outlets]
        return all(flushed)

    def close(self, timeout: float) -> None:
        """Close all outlets, and forget them."""
        deadline = time.monotonic() + timeout
        with self._lock:
            outlets = [outlet for outlet in self._outlets.values() if outlet is not None]
            self._outlets = {"null": None, RDZV: None}
        for outlet in outlets:
            outlet.close(max(0.0, deadline - time.monotonic()))

    def end(self, timeout: float) -> None:
        """Close for good: an interpreter that ends may start no thread."""
        self._over = True
        self.close(timeout)


_recorder = Recorder()


def _start_anew() -> None:
    """After a fork: the threads of the parent are not here, and its locks may be held for ever."""
    global _recorder  # noqa: PLW0603 - there is one a process
    _recorder = Recorder()


os.register_at_fork(after_in_child=_start_anew)


def record(event: Event, destination: str = "null") -> None:
    """Send an event to a destination: ``null``, ``console``, ``file:PATH``, ``otel`` or a plug-in's.

    Returns at once: the event is written a moment later, by another thread. A destination that is slow or
    fails is told of once in the log of ``elastic.events``, and costs events, never the caller.

    Raises:
        ValueError: There is no such destination, or the event was changed into what is none.
        TypeError: It is no event, or was changed into what is none.
    """
    _recorder.put(event, destination)


def prepare(destination: str) -> None:
    """Open a destination now, to know at the start of a job whether events can go there.

    Raises:
        ValueError: There is no such destination, or its argument is wrong.
        RuntimeError: Its plug-in is broken, or a package that it needs is not installed.
        OSError: Its file can't be opened.
    """
    _recorder.open(destination)


def register_event_handler(destination: str, handler: EventHandler | logging.Handler) -> None:
    """Serve a destination by one's own handler: with a method ``record(event)``, or a logging handler.

    The last one registered counts. Its method ``close``, if it has one, is called at the end. TypeError where
    it is no handler, ValueError for an empty name.
    """
    _recorder.register(destination, as_event_handler(handler))


def flush(timeout: float = EXIT_TIMEOUT) -> bool:
    """Wait until all events recorded so far are handed over; False if that takes over `timeout` seconds."""
    return _recorder.flush(timeout)


def close(timeout: float = EXIT_TIMEOUT) -> None:
    """Hand over what is queued, within `timeout` seconds, and close all destinations and their threads.

    Handlers that were registered are forgotten; recording opens destinations anew. A process that ends by
    Python's exit handlers need not call it.
    """
    _recorder.close(timeout)


@atexit.register
def _end() -> None:
    _recorder.end(EXIT_TIMEOUT)


def record_rdzv_event(event: RdzvEvent) -> None:
    """Send a rendezvous event to the handler registered for ``dynamic_rendezvous``, if there is one.

    An agent that is started while there is one sends it each step of its rendezvous.
    """
    _recorder.put(event, RDZV)


def has_rdzv_handler() -> bool:
    """Whether a handler is registered for ``dynamic_rendezvous``: else rendezvous events are dropped."""
    return _recorder.open(RDZV) is not None


def construct_and_record_rdzv_event(
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Make a rendezvous event and record it; where nobody listens, not even make it.

    Args:
        run_id: The job.
        message: What happened, for people.
        node_state: What the node has come to. With FAILED the exception being handled goes along.
        name: What it was about; default: the calling function. The caller's file is put before it.
        hostname: Default: this host's.
        pid: Default: this process's.
        master_endpoint: The master's address, if it is known.
        local_id: Tells agents of one process apart.
        rank: The node's rank, if it has one.
    """
    if not has_rdzv_handler():
        return
    caller = sys._getframe(1)
    record_rdzv_event(
        RdzvEvent(
            name=f"{os.path.basename(caller.f_code.co_filename)}:{name or caller.f_code.co_name}",  # noqa: PTH119
            run_id=run_id,
            message=message,
            hostname=hostname or socket.gethostname(),
            pid=os.getpid() if pid is None else pid,
            node_state=node_state,
            master_endpoint=master_endpoint,
            rank=rank,
            local_id=local_id,
            error_trace=traceback.format_exc()
            if node_state is NodeState.FAILED and sys.exc_info()[0]
            else "",
        )
    )


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """A handler of the logging module whose records go to a destination, as events.

    A record holds an event as its message, or the line of JSON of one. Raises as `prepare`.
    """
    if _recorder.open(destination) is None and destination != RDZV:
        return logging.NullHandler()
    return _ToDestination(destination)


class _ToDestination(logging.Handler):
    """See `get_logging_handler`."""

    def __init__(self, destination: str) -> None:
        super().__init__()
        self._destination = destination

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", record.msg)
        try:
            if not isinstance(event, Event | RdzvEvent):
                event = Event.deserialize(record.getMessage())
            _recorder.put(event, self._destination)
        except ValueError:
            self.handleError(record)
