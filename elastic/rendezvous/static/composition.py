"""The rendezvous backend ``static``: puts a handler together from parameters.

Composition. The endpoint is where node rank 0 is. A port in it is the workers'; without one the nodes meet
at port 29500, and the workers at a free one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from elastic.rendezvous.api import RendezvousParameters
from elastic.rendezvous.backends.stores import SECRET_VARIABLE
from elastic.rendezvous.settings import RendezvousSettings
from elastic.rendezvous.static.handler import LONGEST_SILENCE, NAME, StaticTCPRendezvous
from elastic.utils.endpoints import parse_endpoints

DEFAULT_PORT = 29500


def create_handler(params: RendezvousParameters) -> StaticTCPRendezvous:
    """A handler; nothing is opened yet. Raises ValueError, in one sentence, for wrong settings.

    Besides the settings of every backend there are `rank` (this node's; 0) and `secret_file`. Reads
    ELASTIC_STORE_SECRET where there is no such file.
    """
    return configured(params, os.environ)


def configured(params: RendezvousParameters, env: Mapping[str, str]) -> StaticTCPRendezvous:
    """As `create_handler`, with the environment given."""
    if params.min_nodes != params.max_nodes:
        raise ValueError(
            f"the backend static has a fixed membership, and {params.min_nodes}:{params.max_nodes} nodes "
            "are a range: give one number"
        )
    config = {"failsafe_timeout": LONGEST_SILENCE.total_seconds(), **params.config}
    rank = RendezvousParameters(NAME, "", "-", 1, 1, rank=config.pop("rank", 0)).get_as_int("rank")
    secret_file = str(config.pop("secret_file", "") or "")
    shared = RendezvousParameters(
        NAME, params.endpoint, params.run_id, params.min_nodes, params.max_nodes, params.local_addr, **config
    )
    settings = RendezvousSettings.from_params(shared)
    host, port, workers_port = place_of(params)
    return StaticTCPRendezvous(
        host,
        port,
        rank or 0,
        params.max_nodes,
        params.run_id,
        settings.timeout.join,
        workers_port=workers_port,
        local_addr=params.local_addr,
        settings=settings,
        secret="" if secret_file else env.get(SECRET_VARIABLE, ""),
        secret_file=Path(secret_file) if secret_file else None,
    )


def place_of(params: RendezvousParameters) -> tuple[str, int, int | None]:
    """Where node rank 0 is, the port to meet at, and that of the workers where it is another (0: free)."""
    if not params.endpoint:
        if params.max_nodes > 1:
            raise ValueError("the endpoint is empty: give the address of node rank 0 (--master-addr)")
        return "127.0.0.1", 0, 0
    endpoints = parse_endpoints(params.endpoint, default_port=0)
    if len(endpoints) > 1:
        raise ValueError(f"the endpoint {params.endpoint!r} names several hosts, and node rank 0 is at one")
    (endpoint,) = endpoints
    if endpoint.port:
        return endpoint.host, endpoint.port, None
    return endpoint.host, 0 if params.max_nodes == 1 else DEFAULT_PORT, 0
