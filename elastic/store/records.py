"""The format of a FileStore's file: a header, and records that follow each other.

Pure. A record is a set of changes that counts as a whole or not at all. A writer that is killed leaves a
last record that is too short, which is as if it had not been written; anything else that is not as it was
written is damage, and is said to be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

_MAGIC = b"elastic store 1\n"
INSTANCE = 16  # bytes
HEADER = len(_MAGIC) + INSTANCE
_HEAD = 12  # bytes before a record's body: its length, the checksum of that, the checksum of the body
_SIZE = 4
_SET, _DELETE = b"+", b"-"

Changes = Mapping[bytes, bytes | None]


class Damaged(Exception):
    """The file is not what was written; the text says where."""


class NotOurs(Damaged):
    """The file is no store's, or its very beginning is damaged."""


def header(instance: bytes) -> bytes:
    """How a file begins."""
    return _MAGIC + instance


def instance_of(start: bytes) -> bytes | None:
    """The instance in a file's first HEADER bytes; None where they are not all there yet.

    NotOurs where they are those of something else.
    """
    if not _MAGIC.startswith(start[: len(_MAGIC)]):
        raise NotOurs("it does not begin as a store's file")
    return start[len(_MAGIC) : HEADER] if len(start) >= HEADER else None


def record(changes: Changes) -> bytes:
    """A record: new values by key, None for what is deleted."""
    parts: list[bytes] = []
    for key, value in changes.items():
        parts += (_DELETE if value is None else _SET, _sized(key))
        if value is not None:
            parts.append(_sized(value))
    body = b"".join(parts)
    length = _number(len(body))
    return length + _number(zlib.crc32(length)) + _number(zlib.crc32(body)) + body


def apply(changes: Changes, values: dict[bytes, bytes]) -> None:
    """Makes the changes of a record in the values."""
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value


def read(data: bytes, values: dict[bytes, bytes], *, offset: int) -> int:
    """Applies the whole records in `data`, which stands at `offset` of its file; the bytes they take.

    What comes after them is the rest of a record whose writer was killed. Raises Damaged.
    """
    at = 0
    while at + _HEAD <= len(data):
        length, check, body_check = (
            int.from_bytes(data[n : n + _SIZE], "big") for n in range(at, at + _HEAD, _SIZE)
        )
        if check != zlib.crc32(data[at : at + _SIZE]) or not length:
            raise Damaged(f"there is no record at byte {offset + at}")
        body = data[at + _HEAD : at + _HEAD + length]
        if len(body) < length:
            break
        if zlib.crc32(body) != body_check:
            raise Damaged(f"the record at byte {offset + at} is not as it was written")
        apply(_changes(body), values)
        at += _HEAD + length
    return at


def _changes(body: bytes) -> Changes:
    changes: dict[bytes, bytes | None] = {}
    at = 0
    while at < len(body):
        kind = body[at : at + 1]
        key, at = _take(body, at + 1)
        changes[key] = None
        if kind == _SET:
            changes[key], at = _take(body, at)
    return changes


def _take(body: bytes, at: int) -> tuple[bytes, int]:
    start = at + _SIZE
    end = start + int.from_bytes(body[at:start], "big")
    return body[start:end], end


def _sized(part: bytes) -> bytes:
    return _number(len(part)) + part


def _number(number: int) -> bytes:
    return number.to_bytes(_SIZE, "big")


def snapshot(values: Mapping[bytes, bytes], *, chunk: int = 1 << 20) -> Iterable[bytes]:
    """Records that make up all the values, of about `chunk` bytes each."""
    some: dict[bytes, bytes | None] = {}
    size = 0
    for key, value in values.items():
        some[key] = value
        size += len(key) + len(value)
        if size >= chunk:
            yield record(some)
            some, size = {}, 0
    if some:
        yield record(some)
