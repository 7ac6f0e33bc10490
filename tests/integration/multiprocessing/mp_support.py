"""What the tests of worker groups share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from elastic.multiprocessing import PContext
from elastic.utils.processes import Process

Start: TypeAlias = Callable[..., PContext]
"""See the fixture ``start``."""

Living: TypeAlias = Callable[[], list[Process]]
"""See the fixture ``living``."""

DRAIN_SECONDS = "elastic.multiprocessing.contexts.DRAIN_SECONDS"
"""How long the last output of a worker is waited for. Tests are patient: what it wrote is always told."""

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
"""For programs of a test's own that import the package."""


def eventually(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait for something that nothing tells of; the bound is wide, for a busy machine."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
    return value
