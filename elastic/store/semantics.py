"""What the writing operations mean, for every store that holds its values itself.

Pure: from what is there to what shall be there. The reading ones need no rule.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import TypeVar

_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_LARGEST = 2**63 - 1

V = TypeVar("V")


class Refused(Exception):
    """The operation cannot be done to what is there; the text says why."""


def encoded(value: str | bytes) -> bytes:
    """A value as bytes; TypeError for what is neither text nor bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a store's values are text or bytes, not {type(value).__name__}")


def several(keys: Sequence[str]) -> Sequence[str]:
    """Keys, as given; TypeError for one text in their place, whose letters would be taken for keys."""
    if isinstance(keys, str | bytes):
        raise TypeError(f"keys are a list, and {keys!r} is one text: write [{keys!r}]")
    return keys


def paired(keys: Sequence[str], values: Sequence[V]) -> list[tuple[str, V]]:
    """Keys with their values; ValueError where there are not as many, TypeError for one text as keys."""
    several(keys)
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys, but {len(values)} values: each key needs one")
    return list(zip(keys, values, strict=True))


def added(key: str, current: bytes | None, amount: int) -> int:
    """The counter after adding; TypeError for an amount that is no whole number."""
    if current is not None and not _NUMBER.fullmatch(current):
        raise Refused(f"key {key!r} holds {_short(current)}, which is no number to add to")
    total = operator.index(amount) + int(current or 0)
    if not -_LARGEST - 1 <= total <= _LARGEST:
        raise Refused(f"the counter at key {key!r} would be {total}, which is more than 64 bits hold")
    return total


def swaps(current: bytes | None, expected: bytes) -> bool:
    """Whether a compare_set takes effect."""
    return not expected if current is None else current == expected


def compared(current: bytes | None, expected: bytes, desired: bytes) -> bytes:
    """What a compare_set returns."""
    if swaps(current, expected):
        return desired
    return expected if current is None else current


def _short(value: bytes) -> str:
    return repr(value) if len(value) <= 40 else f"{value[:40]!r}..."
