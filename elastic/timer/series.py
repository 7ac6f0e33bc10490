"""The times that one process measured again and again: of its steps, or of one named section. Pure.

A worker writes them (:mod:`elastic.worker`), an agent reads them and compares ranks
(:mod:`elastic.agent.server.stragglers`).
"""

from __future__ import annotations

from dataclasses import dataclass

STEP = "step"
"""The name of the series that `elastic.worker.step` writes."""

FIRST_LOOK = 16
"""After so many steps a worker wakes its agent, once: there is enough to compare. Later the agent looks."""


@dataclass(frozen=True, slots=True)
class Series:
    """`durations`, in seconds, are the latest, the newest last; `count` is how many there were in all.

    `last_at` is when the latest ended, in seconds of the monotonic clock.
    """

    count: int
    last_at: float
    durations: tuple[float, ...]
