"""One destination at work: a queue that never blocks who fills it, and a thread that empties it.

The thread starts with the first event and is joined by `close`. It alone calls the handler, so a handler may
block or fail as it likes: events wait, then are dropped, and each kind of trouble is told once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from elastic.events.api import Event, RdzvEvent
from elastic.events.handlers import EventHandler

log = logging.getLogger("elastic.events")

CAPACITY = 4096
"""How many events wait for a slow handler; further ones are dropped."""


class Outlet:
    """Hands events to `handler`, which it then owns, in the order in which they come."""

    def __init__(self, destination: str, handler: EventHandler, *, capacity: int = CAPACITY) -> None:
        self._destination = destination
        self._handler = handler
        self._capacity = capacity
        self._changed = threading.Condition()
        self._waiting: deque[Event | RdzvEvent] = deque()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closing = False
        self._dropped = 0
        self._failed = 0

    def put(self, event: Event | RdzvEvent) -> None:
        """Queue an event; drop it where too many wait, or after `close`."""
        with self._changed:
            if self._closing or len(self._waiting) >= self._capacity:
                self._dropped += 1
                tell = self._dropped == 1
            else:
                tell = False
                self._waiting.append(event)
                self._changed.notify_all()
                if self._thread is None:
                    name = f"elastic-events-{self._destination}"
                    self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                    self._thread.start()
        if tell:
            why = "it is closed" if self._closing else f"{self._capacity} wait for it already"
            log.warning("events for %r are dropped from now on: %s", self._destination, why)

    def flush(self, timeout: float) -> bool:
        """Wait until the handler has had all events; False if that takes more than `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def close(self, timeout: float) -> None:
        """Hand over what waits, within `timeout` seconds, then close the handler. Again it does nothing."""
        deadline = time.monotonic() + timeout
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread is not None and self._thread.is_alive():
            with self._changed:
                lost = len(self._waiting) + self._busy
                self._waiting.clear()
            log.warning(
                "%d events for %r are lost: it did not take them in %g s", lost, self._destination, timeout
            )
            return
        if self._thread is None:
            self._close_handler()
        if self._dropped + self._failed > 1:
            # The first was told when it happened.
            log.warning("%d events for %r were lost in all", self._dropped + self._failed, self._destination)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    break
                event = self._waiting.popleft()
                self._busy = True
            self._hand_over(event)
        self._close_handler()

    def _hand_over(self, event: Event | RdzvEvent) -> None:
        try:
            self._handler.record(event)
        except Exception as error:  # a handler is anybody's code, and must harm nobody
            self._failed += 1
            if self._failed == 1:
                log.warning(
                    "an event could not be recorded at %r: %r; further such failures are only counted",
                    self._destination,
                    error,
                )

    def _close_handler(self) -> None:
        close = getattr(self._handler, "close", None)
        if close is None:
            return
        try:
            close()
        except Exception as error:  # as above
            log.warning("the destination of events %r could not be closed: %r", self._destination, error)
