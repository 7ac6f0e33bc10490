"""What all simulations need."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The shells' warnings, of thousands of nodes, would tell nobody anything; the trace has it all."""
    log = logging.getLogger("elastic.rendezvous")
    log.disabled = True
    yield
    log.disabled = False
