"""Parameters that have two names, one of each peer."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def either(what: str, first: str, value: T | None, second: str, other: T | None) -> T | None:
    """The value that was given under one of two names; TypeError, about `what`, where both were used."""
    if value is not None and other is not None:
        raise TypeError(f"{what} takes {first} or {second}, which are the same, and got both")
    return other if value is None else value
