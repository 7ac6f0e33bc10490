"""The sink of a test: everything that watches and leases put, in order, with bounded waits for it."""

from __future__ import annotations

import queue
import time
from typing import Any, TypeVar

from elastic.etcd import Event, WatchBatch

T = TypeVar("T")


class Inbox:
    """Keeps every item in `items`; the methods take the next ones."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: Any, /) -> None:
        self.items.append(item)
        self._queue.put(item)

    def expect(self, kind: type[T], *, seconds: float = 20.0) -> T:
        """The next item, which must be of this kind."""
        try:
            item = self._queue.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no {kind.__name__} within {seconds} s, after {self.items}") from None
        assert isinstance(item, kind), f"expected a {kind.__name__}, got {item}"
        return item

    def find(self, kind: type[T], *, seconds: float = 20.0) -> T:
        """The next item of this kind, whatever comes before it."""
        deadline = time.monotonic() + seconds
        while True:
            item = self._next(deadline, f"a {kind.__name__}")
            if isinstance(item, kind):
                return item

    def events(self, count: int, *, seconds: float = 20.0) -> list[Event]:
        """Events from the next batches, at least so many, whatever else comes between."""
        deadline = time.monotonic() + seconds
        found: list[Event] = []
        while len(found) < count:
            item = self._next(deadline, f"{count} events")
            if isinstance(item, WatchBatch):
                found.extend(item.events)
        return found

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing at all arrives for so long."""
        try:
            self._queue.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def count(self, kind: type[Any]) -> int:
        """How many items of this kind have arrived in all."""
        return sum(isinstance(item, kind) for item in list(self.items))

    def _next(self, deadline: float, what: str) -> Any:
        try:
            return self._queue.get(timeout=max(deadline - time.monotonic(), 0.001))
        except queue.Empty:
            raise AssertionError(f"not {what} in time, only {self.items}") from None
