"""The rendezvous backends without a service of their own: ``tcp``, ``p10d``, ``c10d`` and ``file``.

Composition. All keep the run's records in one document at one key of a store:

==============  ==============================================================================
``tcp``         a TCPStore of ours, which the agent that has the endpoint's address runs
``p10d c10d``   the same, or with ``store_type=file`` a FileStore
``file``        a FileStore of ours: the endpoint is a path on a file system that all nodes share
==============  ==============================================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from elastic.rendezvous.api import RendezvousParameters
from elastic.rendezvous.dynamic import DynamicRendezvousHandler
from elastic.rendezvous.errors import RendezvousConnectionError
from elastic.rendezvous.settings import RendezvousSettings, setting
from elastic.store import FileStore, StoreError
from elastic.utils.endpoints import Endpoint, parse_endpoints
from elastic.utils.network import address_towards

from .document.membership import DocumentMembership
from .document.state import P10dRendezvousBackend, TpRendezvousBackend
from .faults import VARIABLE, FaultPoints
from .hosting import Access, OpenStore, lingering, open_tcp, usual_address

DEFAULT_PORT = 29400
SECRET_VARIABLE = "ELASTIC_STORE_SECRET"  # noqa: S105 - the name of a variable


def create_handler(params: RendezvousParameters) -> DynamicRendezvousHandler:
    """A handler on a store, proven to be usable.

    Raises ValueError for wrong settings and RendezvousConnectionError where the store cannot be used; the
    sentence says why. Reads ELASTIC_STORE_SECRET where the settings name no `secret_file`.
    """
    return connect(params, os.environ, name=params.backend)


def connect(params: RendezvousParameters, env: Mapping[str, str], *, name: str) -> DynamicRendezvousHandler:
    """As `create_handler`, with the environment given, for a handler of that `name`."""
    settings = RendezvousSettings.from_params(params)
    faults = FaultPoints(env.get(VARIABLE, ""))
    kind = P10dRendezvousBackend if params.backend in ("p10d", "c10d") else TpRendezvousBackend
    try:
        opened = _open(params, settings, env)
    except (StoreError, OSError) as e:
        raise RendezvousConnectionError(str(e)) from e
    backend = kind(opened.store, settings.run_id)
    close = settings.timeout.close.total_seconds()
    return DynamicRendezvousHandler(
        settings,
        lambda node_id: DocumentMembership(
            backend,
            opened.store,
            node_id=node_id,
            settings=settings,
            name=name,
            place=opened.place,
            release=lambda ended: opened.release(lingering(close, ended=ended)),
            faults=faults,
        ),
        address=params.local_addr or opened.address,
    )


def _open(params: RendezvousParameters, settings: RendezvousSettings, env: Mapping[str, str]) -> OpenStore:
    if stores_in_file(params):
        return _open_file(params.endpoint, call=settings.call_seconds)
    secret_file = setting(params, "secret_file")
    access = Access(
        connect=settings.connect_timeout.total_seconds(),
        call=settings.call_seconds,
        # Who waits for the agent that runs the store waits for a world, unless told when to give up.
        patience=None if "connect_timeout" in params.config else settings.timeout.join.total_seconds(),
        progress=settings.progress_interval.total_seconds(),
        secret="" if secret_file else env.get(SECRET_VARIABLE, ""),
        secret_file=Path(secret_file) if secret_file else None,
    )
    endpoint = endpoint_of(params)
    opened = open_tcp(endpoint, access, is_host=params.get_as_bool("is_host"), local_addr=params.local_addr)
    try:
        address = opened.address or address_towards(endpoint.host, endpoint.port)
    except OSError:
        opened.release(0)
        raise
    return replace(opened, address=address)


def stores_in_file(params: RendezvousParameters) -> bool:
    """Whether the endpoint is a path; ValueError for a `store_type` that is none."""
    kind = setting(params, "store_type") or "tcp"
    if kind not in ("tcp", "file"):
        raise ValueError(f"rendezvous setting store_type={kind!r} is neither tcp nor file")
    return params.backend == "file" or kind == "file"


def endpoint_of(params: RendezvousParameters) -> Endpoint:
    """Where the store is. Only a node that is alone may leave it out, or the port to chance (0)."""
    text = params.endpoint
    alone = params.max_nodes == 1
    if not text and alone:
        return Endpoint("etcd", "127.0.0.1", 0)
    any_port = text.endswith(":0") and alone
    endpoints = parse_endpoints(text.removesuffix(":0") if any_port else text, default_port=DEFAULT_PORT)
    if len(endpoints) > 1:
        raise ValueError(
            f"the endpoint {text!r} names {len(endpoints)} places, and a store is at one: give one"
        )
    (endpoint,) = endpoints
    if endpoint.scheme != "etcd":
        raise ValueError(
            f"the endpoint {text!r} has the scheme {endpoint.scheme}, which no store has: leave it out"
        )
    return Endpoint(endpoint.scheme, endpoint.host, 0) if any_port else endpoint


def _open_file(path: str, *, call: float) -> OpenStore:
    if not path:
        raise ValueError("the endpoint is empty: give the path of a file that all nodes share")
    store = FileStore(path, timeout=timedelta(seconds=call))

    def release(_: float) -> None:
        store.close()

    return OpenStore(store, f"the file {path}", release, address=usual_address())
