"""The deadlines that are open, by worker and scope. Pure.

Times are numbers on one clock, which comes in as a value. Registering and asking for the next are quick for
many thousands of deadlines.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar


class Request(Protocol):
    """What a worker asks for: a deadline, or, where `expiration_time` is negative, the end of one."""

    worker_id: Any
    scope_id: str
    expiration_time: float


R = TypeVar("R", bound=Request)

_SPARE = 64  # entries in the heap that may be stale before it is built anew


class Deadlines(Generic[R]):
    """At most one deadline for a worker and scope: the latest that was asked for."""

    def __init__(self) -> None:
        self._open: dict[Hashable, dict[str, tuple[int, R]]] = {}
        self._order: list[tuple[float, int, R]] = []
        self._numbers = itertools.count()
        self._live: set[int] = set()

    def __len__(self) -> int:
        return len(self._live)

    def register(self, requests: Iterable[R]) -> None:
        """Open, move and end deadlines, in the order of the requests."""
        for request in requests:
            self._end(request.worker_id, request.scope_id)
            if request.expiration_time < 0:
                continue
            number = next(self._numbers)
            self._open.setdefault(request.worker_id, {})[request.scope_id] = (number, request)
            self._live.add(number)
            heapq.heappush(self._order, (request.expiration_time, number, request))
        self._tidy()

    def clear(self, workers: Collection[Hashable]) -> None:
        """Forget all deadlines of these workers."""
        for worker in workers:
            for number, _ in self._open.pop(worker, {}).values():
                self._live.discard(number)
        self._tidy()

    def clear_all(self) -> None:
        """Forget everything."""
        self.clear(list(self._open))

    def workers(self) -> set[Hashable]:
        """Those that have a deadline."""
        return set(self._open)

    def expired(self, now: float) -> dict[Any, list[R]]:
        """The deadlines that have passed, the earliest first, by worker. They stay open."""
        if (first := self.next()) is None or first > now:
            return {}
        passed = sorted(entry for entry in self._order if entry[1] in self._live and entry[0] <= now)
        found: dict[Any, list[R]] = {}
        for _, _, request in passed:
            found.setdefault(request.worker_id, []).append(request)
        return found

    def next(self) -> float | None:
        """The earliest deadline; None where there is none."""
        while self._order and self._order[0][1] not in self._live:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else None

    def _end(self, worker: Hashable, scope: str) -> None:
        scopes = self._open.get(worker, {})
        if scope in scopes:
            self._live.discard(scopes.pop(scope)[0])
            if not scopes:
                del self._open[worker]

    def _tidy(self) -> None:
        if len(self._order) > 2 * len(self._live) + _SPARE:
            self._order = [entry for entry in self._order if entry[1] in self._live]
            heapq.heapify(self._order)
