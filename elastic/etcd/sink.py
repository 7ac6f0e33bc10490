"""Where watches and kept leases put what happened: the owner's queue, or anything with its `put`."""

from __future__ import annotations

from typing import Any, Protocol


class Sink(Protocol):
    """Takes items from any thread. `put` must not block: the thread that calls it has a stream to read."""

    def put(self, item: Any, /) -> object: ...
