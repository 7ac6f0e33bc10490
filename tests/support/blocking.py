"""Calls that should block: run in a thread, with their outcome where a test can look at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

PATIENCE = 40.0
"""Seconds after which a test gives up waiting. Nothing that works comes near it."""


class Blocked:
    """A call in a thread of its own, which is joined by `result`."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._outcome: list[Any] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def still(self, seconds: float = 0.05) -> bool:
        """Whether it still blocks after that time."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    def result(self) -> Any:
        """What the call returned, or the exception that it raised."""
        self._thread.join(PATIENCE)
        assert self._outcome, "the call still blocks"
        return self._outcome[0]

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except Exception as e:
            self._outcome.append(e)
