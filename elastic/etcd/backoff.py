"""Random pauses: many nodes lose the same etcd at the same moment and must not come back in step."""

from __future__ import annotations

import random

LONGEST = 1.0


def jitter(low: float, high: float) -> float:
    """A random number of the range."""
    return random.uniform(low, high)  # noqa: S311 -- spreads load, guards nothing


def pause(failures: int) -> float:
    """Seconds to wait after so many failures in a row: random, up to a limit that doubles to LONGEST."""
    return jitter(0.0, min(LONGEST, 0.05 * 2 ** min(failures, 10)))
