"""A handler over a state backend and a store that the caller brings.

Composition, for `DynamicRendezvousHandler.from_backend`. Neither the backend nor the store is closed here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from elastic.rendezvous.dynamic import DynamicRendezvousHandler
from elastic.rendezvous.settings import RendezvousSettings, RendezvousTimeout
from elastic.store import as_store

from .document.membership import DocumentMembership
from .document.state import RendezvousBackend
from .hosting import usual_address


def over_backend(
    run_id: str,
    store: Any,
    backend: RendezvousBackend,
    *,
    min_nodes: int,
    max_nodes: int,
    local_addr: str | None,
    timeout: RendezvousTimeout | None,
    keep_alive_interval: timedelta,
    keep_alive_max_attempt: int,
) -> DynamicRendezvousHandler:
    """See `DynamicRendezvousHandler.from_backend`."""
    settings = RendezvousSettings(
        run_id=run_id,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        timeout=timeout or RendezvousTimeout(),
        ttl=keep_alive_interval * keep_alive_max_attempt,
        keep_alive_interval=keep_alive_interval,
    )
    exchange = as_store(store)
    return DynamicRendezvousHandler(
        settings,
        lambda node_id: DocumentMembership(backend, exchange, node_id=node_id, settings=settings),
        address=local_addr or usual_address(),
    )
