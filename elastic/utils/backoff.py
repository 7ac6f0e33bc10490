"""Random pauses: many nodes lose the same server at the same moment and must not come back in step."""

from __future__ import annotations

import random


def jitter(low: float, high: float) -> float:
    """A random number of the range."""
    return random.uniform(low, high)  # noqa: S311 -- spreads load, guards nothing


def limit(failures: int, *, first: float, longest: float) -> float:
    """How many seconds a pause after so many failures in a row may last: `first`, doubled up to `longest`."""
    return min(longest, first * 2.0 ** min(failures, 10))


def pause(failures: int, *, first: float = 0.05, longest: float = 1.0) -> float:
    """Seconds to wait after so many failures in a row: random, up to their `limit`."""
    return jitter(0.0, limit(failures, first=first, longest=longest))
