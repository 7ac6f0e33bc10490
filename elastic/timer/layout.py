"""The layout of a slate: a small file in which one process says how it stands, for its agent to read.

A slate begins with its state: when its process last gave a sign of life, and which of its deadlines comes
first. Series of measured times follow, each in its own place. The state and each series is written by one
call, and carries a checksum, since a reader can come in the middle of that.

It reads and writes no file: :mod:`elastic.timer.slate` writes slates, :mod:`elastic.timer.mailbox` reads
them. It holds numbers and text in fixed places and nothing that could be executed.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

from .series import Series

_MAGIC = 0x31544C45  # "ELT1"
_HEAD = struct.Struct("<II")  # magic number, checksum of what follows
_STATE = struct.Struct("<ddddiH")  # the fields of State but the scope, whose length comes last
_SERIES = struct.Struct("<Qd32s")  # count, end of the latest, name

STATE_BYTES = 512
MOST_SCOPE_BYTES = STATE_BYTES - _HEAD.size - _STATE.size
MOST_NAME_BYTES = 32
KEPT = 64
"""How many of the latest times a series keeps."""
SERIES_BYTES = _HEAD.size + _SERIES.size + 8 * KEPT
MOST_SERIES = 16
SLATE_BYTES = STATE_BYTES + MOST_SERIES * SERIES_BYTES

_KEPT = struct.Struct(f"<{KEPT}d")


@dataclass(frozen=True, slots=True)
class State:
    """How a process stands. Times are seconds of the monotonic clock.

    `deadline` is the first of its deadlines (None: it has none), `allowed` how many seconds it gave itself
    for `scope`, and `signal` what it is to be ended with. It counts on being read again at `look_by`: until
    then it does not ring for a deadline that is later than that.
    """

    alive_at: float
    look_by: float | None = None
    deadline: float | None = None
    allowed: float = 0.0
    scope: str = ""
    signal: int = 0


def pack_state(state: State) -> bytes:
    """The bytes at the beginning of a slate. A scope that is too long is cut."""
    scope = state.scope.encode("utf-8", "replace")[:MOST_SCOPE_BYTES]
    body = _STATE.pack(
        state.alive_at,
        _or_never(state.look_by),
        _or_never(state.deadline),
        state.allowed,
        state.signal,
        len(scope),
    )
    return _sealed(body + scope.ljust(MOST_SCOPE_BYTES, b"\0"))


def unpack_state(data: bytes) -> State | None:
    """The state; None where there is none, or where it is just being written."""
    body = _opened(data, STATE_BYTES)
    if body is None:
        return None
    alive_at, look_by, deadline, allowed, signal, length = _STATE.unpack_from(body)
    scope = body[_STATE.size : _STATE.size + length].decode("utf-8", "ignore")
    return State(alive_at, _or_none(look_by), _or_none(deadline), allowed, scope, signal)


def series_offset(index: int) -> int:
    """Where the series with this index begins."""
    return STATE_BYTES + index * SERIES_BYTES


def pack_series(name: str, series: Series) -> bytes:
    """The bytes of a series. A name that is too long is cut, and so are durations beyond `KEPT`."""
    durations = series.durations[-KEPT:]
    ring = _KEPT.pack(*durations, *[0.0] * (KEPT - len(durations)))
    return _sealed(_SERIES.pack(series.count, series.last_at, name.encode("utf-8", "replace")) + ring)


def unpack_series(data: bytes) -> tuple[str, Series] | None:
    """Name and content of a series; None where there is none, or where it is just being written."""
    body = _opened(data, SERIES_BYTES)
    if body is None:
        return None
    count, last_at, name = _SERIES.unpack_from(body)
    durations = _KEPT.unpack_from(body, _SERIES.size)[: min(count, KEPT)]
    return name.rstrip(b"\0").decode("utf-8", "ignore"), Series(count, last_at, durations)


def _or_never(at: float | None) -> float:
    return math.inf if at is None else at


def _or_none(at: float) -> float | None:
    return None if math.isinf(at) else at


def _sealed(body: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, zlib.crc32(body)) + body


def _opened(data: bytes, size: int) -> bytes | None:
    """What was sealed. It must fill its place, since the checksum covers all of that."""
    if len(data) < size:
        return None
    magic, checksum = _HEAD.unpack_from(data)
    body = data[_HEAD.size : size]
    return body if magic == _MAGIC and zlib.crc32(body) == checksum else None
