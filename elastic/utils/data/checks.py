"""The check that all parameters which count something go through."""

from __future__ import annotations

import operator
from typing import SupportsIndex


def whole(name: str, value: SupportsIndex, *, least: int | None = None) -> int:
    """`value` as an int.

    Raises:
        TypeError: It is no whole number. A bool is none either, so that a misplaced flag is seen.
        ValueError: It is less than `least`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} is {value!r}: give a whole number")
    if least is not None and number < least:
        raise ValueError(f"{name} is {number}: give {least} or more")
    return number
