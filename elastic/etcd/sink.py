"""Where watches and kept leases put what happened: the owner's queue, or anything with its `put`."""

from __future__ import annotations

from typing import Any, Protocol


class Sink(Protocol):
    """Takes items from the client's thread, which carries all of its calls: `put` must neither block nor call
    etcd through the same client.
    """

    def put(self, item: Any, /) -> object: ...
