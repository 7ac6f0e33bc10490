"""What a TCPStore and its server say to each other: frames of bytes, and what they mean.

Pure. A frame is a length (4 bytes, big-endian) and so many bytes: the version, what it is, its numbers, its
fields. Nothing in it is code, nests or recurses, and every length is checked before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
LENGTH = 4
_NUMBER = 8


class Garbled(Exception):
    """What arrived is not of this protocol; the text says what is wrong with it."""


class Op(IntEnum):
    """What is asked for."""

    PING = 1
    PEEK = 2
    GET = 3  # any number of keys
    WAIT = 4
    WAIT_CHANGE = 5
    CHECK = 6
    LIST = 7
    COUNT = 8
    SET = 9  # any number of pairs
    APPEND = 10
    ADD = 11
    COMPARE_SET = 12
    DELETE = 13


WRITES = frozenset({Op.SET, Op.APPEND, Op.ADD, Op.COMPARE_SET, Op.DELETE})


class Outcome(IntEnum):
    """How it went. FAILED carries the reason, TIMED_OUT the keys that are not there."""

    DONE = 1
    TIMED_OUT = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Request:
    """One question.

    `number` comes back with the answer. `wait` is how long the answer may be held back, in milliseconds.
    A write has a number of its own (`write`), which it keeps when it is sent again; `floor` is the lowest
    one that its client may still send again.
    """

    number: int
    op: Op
    fields: tuple[bytes, ...] = ()
    wait: int = 0
    write: int = 0
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the question of that number."""

    number: int
    outcome: Outcome
    fields: tuple[bytes, ...] = ()


def request_frame(request: Request) -> bytes:
    """The request, ready to be sent."""
    numbers = (request.number, request.wait, request.write, request.floor)
    return framed(bytes((VERSION, request.op)) + _numbers(numbers) + _fields(request.fields))


def answer_frame(answer: Answer) -> bytes:
    """The answer, ready to be sent."""
    return framed(bytes((VERSION, answer.outcome)) + _numbers((answer.number,)) + _fields(answer.fields))


def read_request(body: bytes) -> Request:
    """The request in a frame's body; Garbled for anything else."""
    kind, numbers, fields = _parts(body, numbers=4)
    try:
        op = Op(kind)
    except ValueError:
        raise Garbled(f"there is no request of kind {kind}") from None
    number, wait, write, floor = numbers
    if (op in WRITES) != (write > 0) or floor > write:
        raise Garbled(f"a {op.name} request with the write number {write} and the floor {floor}")
    return Request(number, op, fields, wait=wait, write=write, floor=floor)


def read_answer(body: bytes) -> Answer:
    """The answer in a frame's body; Garbled for anything else."""
    kind, (number,), fields = _parts(body, numbers=1)
    try:
        return Answer(number, Outcome(kind), fields)
    except ValueError:
        raise Garbled(f"there is no answer of kind {kind}") from None


def framed(body: bytes) -> bytes:
    """The body, as a frame."""
    return len(body).to_bytes(LENGTH, "big") + body


def frame_length(head: bytes | bytearray, *, limit: int) -> int:
    """The length of the body after these first four bytes; Garbled where it is more than the limit."""
    length = int.from_bytes(head[:LENGTH], "big")
    if not 0 < length <= limit:
        raise Garbled(f"a frame of {length} bytes, where 1 to {limit} are allowed")
    return length


def take_frame(buffer: bytearray, *, limit: int) -> bytes | None:
    """The body of the first whole frame, cut off the buffer; None where it is not whole yet."""
    if len(buffer) < LENGTH:
        return None
    end = LENGTH + frame_length(buffer, limit=limit)
    if len(buffer) < end:
        return None
    body = bytes(memoryview(buffer)[LENGTH:end])
    del buffer[:end]
    return body


def checked_version(body: bytes) -> None:
    """Garbled where a frame is of another version of the protocol."""
    if not body or body[0] != VERSION:
        spoken = body[0] if body else "?"
        raise Garbled(f"the other side speaks version {spoken} of the protocol, and this one {VERSION}")


def _numbers(numbers: Iterable[int]) -> bytes:
    return b"".join(number.to_bytes(_NUMBER, "big") for number in numbers)


def _fields(fields: Iterable[bytes]) -> bytes:
    return b"".join(part for field in fields for part in (len(field).to_bytes(LENGTH, "big"), field))


def _parts(body: bytes, *, numbers: int) -> tuple[int, list[int], tuple[bytes, ...]]:
    checked_version(body)
    at = 2 + numbers * _NUMBER
    if len(body) < at:
        raise Garbled(f"a frame of {len(body)} bytes is too short")
    values = [int.from_bytes(body[n : n + _NUMBER], "big") for n in range(2, at, _NUMBER)]
    fields = []
    while at < len(body):
        start = at + LENGTH
        at = start + int.from_bytes(body[at:start], "big")
        if start > len(body) or at > len(body):
            raise Garbled("a field goes beyond the end of its frame")
        fields.append(body[start:at])
    return body[1], values, tuple(fields)
