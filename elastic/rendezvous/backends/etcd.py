"""The rendezvous backend ``etcd``: puts a handler together from parameters, and reads a run for operators.

Composition. The keys of one run lie under ``<etcd_prefix>/<run_id>/``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from elastic import etcd
from elastic.etcd import (
    Client,
    EtcdError,
    Tls,
    Unavailable,
)
from elastic.rendezvous.api import RendezvousParameters
from elastic.rendezvous.codec import encode, kind_of
from elastic.rendezvous.core import view
from elastic.rendezvous.core.records import Control
from elastic.rendezvous.dynamic import DynamicRendezvousHandler
from elastic.rendezvous.errors import RendezvousConnectionError
from elastic.rendezvous.settings import RendezvousSettings, setting
from elastic.utils.endpoints import parse_endpoints
from elastic.utils.network import address_towards

from .etcd_membership import EtcdMembership
from .etcd_news import seen_in, text_of
from .fallback import fall_back, fallback_of
from .faults import VARIABLE, FaultPoints

DEFAULT_PREFIX = "/elastic"


def create_handler(params: RendezvousParameters) -> DynamicRendezvousHandler:
    """A handler on etcd, proven to be usable; on the `fallback`, if one is set, where etcd does not answer.

    Raises ValueError for wrong settings and RendezvousConnectionError where etcd cannot be used; the
    sentence says why. Reads ELASTIC_ETCD_USER and ELASTIC_ETCD_PASSWORD where the settings name no user.
    """
    return connect(params, os.environ)


def connect(params: RendezvousParameters, env: Mapping[str, str]) -> DynamicRendezvousHandler:
    """As `create_handler`, with the environment given."""
    settings = RendezvousSettings.from_params(params)
    faults = FaultPoints(env.get(VARIABLE, ""))
    instead = fallback_of(params)
    client, prefix = open_run(params, env, settings=settings)
    try:
        client.check(timeout=settings.connect_timeout.total_seconds(), keys=etcd.prefix(prefix.encode()))
        address = params.local_addr or _own_address(client)
    except (EtcdError, OSError) as e:
        client.close()
        if instead is not None and isinstance(e, Unavailable):
            return fall_back(instead, env, name=params.backend, reason=str(e))
        raise RendezvousConnectionError(str(e)) from e
    return DynamicRendezvousHandler(
        settings,
        lambda node_id: EtcdMembership(
            client, prefix=prefix, node_id=node_id, settings=settings, faults=faults
        ),
        address=address,
    )


def read_run(params: RendezvousParameters, env: Mapping[str, str]) -> view.View:
    """All records of a run, read once, without taking part in it.

    Raises ValueError for wrong settings, EtcdError where etcd cannot be used, and RendezvousStateError
    for the first record that cannot be read.
    """
    settings = RendezvousSettings.from_params(params)
    client, prefix = open_run(params, env, settings=settings)
    with client:
        client.check(timeout=settings.connect_timeout.total_seconds())
        snapshot = client.get_prefix(prefix.encode())
    records = {text_of(kv.key)[len(prefix) :]: kv for kv in snapshot.kvs}
    found = {key: seen_in(key, kv) for key, kv in records.items() if kind_of(key) is not None}
    return view.View().read(snapshot.revision, (), found)


def write_control(params: RendezvousParameters, env: Mapping[str, str], control: Control) -> bool:
    """Tell all agents of a run what an operator wants; False where there is no such run, or it has ended.

    It is kept as long as the run's other records. Raises as `read_run`.
    """
    settings = RendezvousSettings.from_params(params)
    client, prefix = open_run(params, env, settings=settings)
    key, closed = f"{prefix}{view.ROUND}".encode(), f"{prefix}{view.CLOSED}".encode()
    value = encode(control, written_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"))
    with client:
        client.check(timeout=settings.connect_timeout.total_seconds())
        found = client.get(key)
        if found is None:
            return False
        put = etcd.Put(f"{prefix}{view.CONTROL}".encode(), value, found.lease)
        return client.txn([etcd.absent(closed), etcd.created_at(key, found.create_revision)], [put]).succeeded


def open_run(
    params: RendezvousParameters, env: Mapping[str, str], *, settings: RendezvousSettings
) -> tuple[Client, str]:
    """A client for the endpoint that `params` names, not connected yet, and the prefix of the run's keys."""
    endpoints = parse_endpoints(params.endpoint, default_port=etcd.DEFAULT_PORT)
    protocol = setting(params, "protocol")
    if protocol not in ("", "http", "https"):
        raise ValueError(f"rendezvous setting protocol={protocol!r} is neither http nor https")
    if protocol == "https":
        endpoints = tuple(type(e)("https", e.host, e.port) for e in endpoints)
    ca, cert, key = (_path(setting(params, name)) for name in ("ca_cert", "ssl_cert", "ssl_cert_key"))
    tls = Tls(ca=ca, cert=cert, key=key) if ca or cert or key else None
    user = setting(params, "user") or env.get("ELASTIC_ETCD_USER") or None
    password = env.get("ELASTIC_ETCD_PASSWORD") or None
    password_file = setting(params, "password_file")
    if password_file:
        try:
            password = Path(password_file).read_text().rstrip("\n")
        except OSError as e:
            raise ValueError(f"cannot read password_file {password_file!r}: {e.strerror or e}") from e
    client = Client(
        endpoints,
        tls=tls,
        user=user,
        password=password if user else None,
        timeout=settings.read_timeout.total_seconds(),
    )
    root = "/" + (setting(params, "etcd_prefix") or DEFAULT_PREFIX).strip("/")
    return client, f"{root}/{settings.run_id}/"


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _own_address(client: Client) -> str:
    """The address from which this machine reaches etcd, which other nodes can be expected to reach too."""
    endpoint = client.endpoints[0]
    return address_towards(endpoint.host, endpoint.port)
