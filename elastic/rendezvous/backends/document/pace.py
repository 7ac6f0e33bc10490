"""The time of what one node does with the document of its run.

All that reads the clock, pauses or draws lots here does so by a `Pace`; a simulator has one of its own.
"""

from __future__ import annotations

import threading
import time

from elastic.utils import backoff


class Pace:
    """Real time. May be used from any thread."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""
        return time.monotonic()

    def spread(self, low: float, high: float) -> float:
        """A number of the range, so that nodes do not act in step."""
        return backoff.jitter(low, high)

    def pause(self, seconds: float) -> None:
        """Let so much time go by, or less where the end comes first."""
        self._ended.wait(seconds)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """The node goes: no pause lasts any longer."""
        self._ended.set()
