"""Timeouts as callers give them: a timedelta, as torch has it, or a number of seconds, as tensorplay has it.

Pure.
"""

from __future__ import annotations

from datetime import timedelta

Duration = timedelta | float

_FOREVER = 1e8  # seconds: no system call takes many more

DEFAULT_TIMEOUT = timedelta(minutes=5)


def as_timedelta(duration: Duration) -> timedelta:
    """ValueError for a negative or impossible one, TypeError for what is neither timedelta nor number."""
    if isinstance(duration, timedelta):
        exact = duration
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        raise TypeError(f"timeout {duration!r} is neither a timedelta nor a number of seconds")
    else:
        try:
            exact = timedelta(seconds=duration)
        except (ValueError, OverflowError):
            raise ValueError(f"timeout {duration!r} is not a possible number of seconds") from None
    if exact < timedelta(0):
        raise ValueError(f"timeout {duration!r} is negative: give a timedelta or seconds from 0 upwards")
    return exact


def seconds(duration: Duration) -> float:
    """The duration as seconds, at most three years of them; raises as `as_timedelta`."""
    return min(as_timedelta(duration).total_seconds(), _FOREVER)
