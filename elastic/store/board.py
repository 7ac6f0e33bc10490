"""What a TCPStoreServer holds: the values, who waits for them, and the answers to what clients ask.

Pure: no socket and no clock. Requests and the time come in; answers go out at once, or later through
`take_due`, when a key has come or changed or the time of a wait is over.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from .limits import Limits
from .messages import WRITES, Answer, Garbled, Op, Outcome, Request
from .replays import Replays
from .semantics import Refused, added, compared, swaps


@dataclass(slots=True)
class _Waiter:
    request: Request
    keys: frozenset[bytes]
    deadline: float
    missing: set[bytes] = field(default_factory=set)


class Board:
    """The data of one server, and the waits of its connections: one a connection, named by a number."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._values: dict[bytes, bytes] = {}
        self._used = 0
        self._waiters: dict[int, _Waiter] = {}
        self._by_key: dict[bytes, set[int]] = {}
        self._deadlines: list[tuple[float, int, int]] = []
        self._due: list[tuple[int, Answer]] = []
        self._replays = Replays(entries=limits.replays, size=limits.replay_bytes)

    def handle(self, who: int, client: bytes, request: Request, *, now: float) -> Answer | None:
        """The answer to a request of connection `who` of that client; None where it has to wait.

        Garbled for a request that makes no sense; the connection is of no use then.
        """
        if request.op is Op.PING:
            return Answer(request.number, Outcome.DONE)
        if who in self._waiters:
            raise Garbled(f"a {request.op.name} request while another one waits")
        if request.op in WRITES:
            return self._write_once(client, request)
        return self._read(who, request, now)

    def forget(self, who: int) -> None:
        """The connection is gone: nobody waits there any more."""
        waiter = self._waiters.pop(who, None)
        for key in () if waiter is None else waiter.keys:
            waiting = self._by_key[key]
            waiting.discard(who)
            if not waiting:
                del self._by_key[key]

    def take_due(self, *, now: float) -> list[tuple[int, Answer]]:
        """The answers to waits that are over since the last call, and their connections."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, who, number = heapq.heappop(self._deadlines)
            waiter = self._waiters.get(who)
            if waiter is not None and waiter.request.number == number:
                self.forget(who)
                self._due.append((who, Answer(number, Outcome.TIMED_OUT, tuple(sorted(waiter.missing)))))
        due, self._due = self._due, []
        return due

    def next_deadline(self) -> float | None:
        """When the next wait is over at the latest. It may be of a wait that was answered already."""
        return self._deadlines[0][0] if self._deadlines else None

    # -- reading ----------------------------------------------------------------------------------------

    def _read(self, who: int, request: Request, now: float) -> Answer | None:
        fields = request.fields
        if request.op is Op.LIST:
            return self._fitting(request, sorted(self._values))
        if request.op is Op.COUNT:
            return _done(request, _text(len(self._values)))
        if request.op is Op.CHECK:
            return _done(request, b"1" if all(key in self._values for key in fields) else b"")
        if request.op is Op.PEEK:
            (key,) = _count(request, 1)
            value = self._values.get(key)
            return _done(request) if value is None else _done(request, value)
        if request.op is Op.WAIT_CHANGE and len(fields) not in (1, 2):
            raise Garbled(f"a WAIT_CHANGE request with {len(fields)} fields")
        keys = frozenset(fields[:1] if request.op is Op.WAIT_CHANGE else fields)
        waiter = _Waiter(request, keys, now + request.wait / 1000)
        waiter.missing = {key for key in keys if key not in self._values}
        if self._is_over(waiter):
            return self._result(waiter)
        if not request.wait:
            return Answer(request.number, Outcome.TIMED_OUT, tuple(sorted(waiter.missing)))
        self._suspend(who, waiter)
        return None

    def _suspend(self, who: int, waiter: _Waiter) -> None:
        self._waiters[who] = waiter
        for key in waiter.keys:
            self._by_key.setdefault(key, set()).add(who)
        heapq.heappush(self._deadlines, (waiter.deadline, who, waiter.request.number))
        if len(self._deadlines) > 2 * len(self._waiters) + 64:
            # Most are of waits that were answered before their time.
            self._deadlines = [(w.deadline, who, w.request.number) for who, w in self._waiters.items()]
            heapq.heapify(self._deadlines)

    def _is_over(self, waiter: _Waiter) -> bool:
        if waiter.request.op is not Op.WAIT_CHANGE:
            return not waiter.missing
        key, *known = waiter.request.fields
        return self._values.get(key) != (known[0] if known else None)

    def _result(self, waiter: _Waiter) -> Answer:
        request = waiter.request
        if request.op is Op.GET:
            return self._fitting(request, [self._values[key] for key in request.fields])
        return _done(request)

    def _fitting(self, request: Request, fields: list[bytes]) -> Answer:
        size = sum(map(len, fields)) + 4 * len(fields) + 64
        if size > self._limits.frame:
            return _failed(request, f"the answer has {size} bytes; at most {self._limits.frame} go into one")
        return _done(request, *fields)

    # -- writing ----------------------------------------------------------------------------------------

    def _write_once(self, client: bytes, request: Request) -> Answer:
        known = self._replays.find(client, request.write)
        if known is not None:
            return Answer(request.number, known.outcome, known.fields)
        if self._replays.is_over(client, request.write):
            return _failed(request, "this write comes after its answer")
        self._replays.raise_floor(client, request.floor)
        try:
            answer = self._write(request)
        except Refused as e:
            answer = _failed(request, str(e))
        self._replays.remember(client, request.write, answer)
        return answer

    def _write(self, request: Request) -> Answer:
        if request.op is Op.SET:
            if not request.fields or len(request.fields) % 2:
                raise Garbled(f"a SET request with {len(request.fields)} fields")
            self._store(dict(zip(request.fields[::2], request.fields[1::2], strict=True)))
            return _done(request)
        if request.op is Op.DELETE:
            (key,) = _count(request, 1)
            gone = self._values.pop(key, None)
            if gone is None:
                return _done(request)
            self._used -= len(key) + len(gone)
            self._changed(key)
            return _done(request, b"1")
        if request.op is Op.COMPARE_SET:
            key, expected, desired = _count(request, 3)
            current = self._values.get(key)
            if swaps(current, expected):
                self._store({key: desired})
            return _done(request, compared(current, expected, desired))
        key, value = _count(request, 2)
        current = self._values.get(key)
        if request.op is Op.APPEND:
            self._store({key: (current or b"") + value})
            return _done(request)
        total = _text(added(key.decode(errors="replace"), current, _number(value)))
        self._store({key: total})
        return _done(request, total)

    def _store(self, values: dict[bytes, bytes]) -> None:
        limits, more, used = self._limits, 0, self._used
        for key, value in values.items():
            if len(key) > limits.key:
                raise Refused(
                    f"the key {key[:40]!r}... has {len(key)} bytes; at most {limits.key} are allowed"
                )
            name = repr(key.decode(errors="replace"))
            if len(value) > limits.value:
                raise Refused(
                    f"the value for key {name} has {len(value)} bytes; at most {limits.value} are allowed"
                )
            old = self._values.get(key)
            more += old is None
            used += len(value) - (-len(key) if old is None else len(old))
        if more and len(self._values) + more > limits.keys:
            raise Refused(f"the store holds {len(self._values)} keys; at most {limits.keys} are allowed")
        if used > self._used and used > limits.total:
            raise Refused(f"the store would hold {used} bytes; at most {limits.total} are allowed")
        self._used = used
        self._values.update(values)
        for key in values:
            self._changed(key)

    def _changed(self, key: bytes) -> None:
        """The key has another value, or none any more: who waited for that is answered."""
        for who in tuple(self._by_key.get(key, ())):
            waiter = self._waiters[who]
            if key in self._values:
                waiter.missing.discard(key)
            else:
                waiter.missing.add(key)
            if self._is_over(waiter):
                self.forget(who)
                self._due.append((who, self._result(waiter)))


def _count(request: Request, count: int) -> tuple[bytes, ...]:
    if len(request.fields) != count:
        raise Garbled(f"a {request.op.name} request with {len(request.fields)} fields")
    return request.fields


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise Garbled("an ADD request without a number") from None


def _text(number: int) -> bytes:
    return str(number).encode()


def _done(request: Request, *fields: bytes) -> Answer:
    return Answer(request.number, Outcome.DONE, fields)


def _failed(request: Request, reason: str) -> Answer:
    return Answer(request.number, Outcome.FAILED, (reason.encode(),))
