"""Who runs the store of a rendezvous without a service of its own: the agent that has the endpoint's address.

A name is never compared with a name. The agent tries to bind the address: where it is not this machine's,
or the port is taken (by the store of another agent here), it is a client. Of several addresses of a name only
the first, in numeric order, is for the store, so that no two machines of one name run two.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from elastic.store import Store, StoreError, TCPStore, TCPStoreServer
from elastic.utils.endpoints import Endpoint
from elastic.utils.network import address_towards, bound

_LEAVING_SECONDS = 5.0  # for the others to hear that who runs the store goes

log = logging.getLogger("elastic.rendezvous")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a store is used: seconds for connecting and for one call, and what clients must know."""

    connect: float
    call: float
    secret: str = ""
    secret_file: Path | None = None


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store, what messages call it, and how to free it, told how long a server waits for its clients.

    `address` is where other nodes reach this one on the way to the store; "" where there is no way.
    """

    store: Store
    place: str
    release: Callable[[float], None]
    address: str = ""


def open_tcp(
    endpoint: Endpoint, access: Access, *, is_host: bool | None, local_addr: str | None = None
) -> OpenStore:
    """A store at an endpoint, which this agent runs where `is_host` says so, or the address is its own.

    Port 0 is any free one of this machine. StoreError, in one sentence, where there is no store then.
    """
    server, obstacle = _host(endpoint, access, is_host=is_host, local_addr=local_addr)
    host, port = (endpoint.host, endpoint.port) if server is None else (server.host, server.port)
    place = f"the store at {Endpoint('etcd', endpoint.host, port)}, which runs in the agent on that host,"
    try:
        client = TCPStore(
            host,
            port,
            timeout=timedelta(seconds=access.connect),
            heartbeat=access.call / 2,  # so a server that is frozen is noticed within half a ttl
            secret=access.secret or None,
            secret_file=access.secret_file,
        )
    except StoreError as e:
        if server is not None:
            server.close()
        raise StoreError(f"{place} does not answer within {access.connect:g} s: {e}{obstacle}") from e
    client.set_timeout(timedelta(seconds=access.call))
    if server is not None:
        log.info("this agent runs the store of the rendezvous, at %s", Endpoint("etcd", host, port))

    def release(linger: float) -> None:
        client.close()
        if server is not None:
            if server.connections:
                log.info("the store of the rendezvous stays for %g s at most, until others have left", linger)
            server.close(linger=linger)

    return OpenStore(client, place, release, address="" if server is None else server.host)


def _host(
    endpoint: Endpoint, access: Access, *, is_host: bool | None, local_addr: str | None
) -> tuple[TCPStoreServer | None, str]:
    """The server, if this agent is to run one; else what to say if nobody else turns out to do so."""
    if is_host is False:
        return None, "; this agent does not run one, as is_host=0 says"
    address = addresses_of(endpoint)[0]
    if not is_own(address):
        if not is_host:
            return None, f"; an agent on the machine with the address {address} runs it"
        if not local_addr:
            raise StoreError(
                f"{endpoint.host} ({address}) is no address of this machine, and is_host=1 says that this "
                "agent runs the store: give --local-addr the address of this machine that it stands for"
            )
        address = local_addr
    try:
        server = TCPStoreServer(
            address, endpoint.port, secret=access.secret or None, secret_file=access.secret_file
        )
    except StoreError as e:
        if is_host:
            raise
        return None, f"; this agent cannot run it either: {e}"
    return server, ""


def lingering(close: float, *, ended: bool) -> float:
    """How long a store stays for others, at most: for the `close` timeout so that all hear of a job's end."""
    return close if ended else min(close, _LEAVING_SECONDS)


def addresses_of(endpoint: Endpoint) -> list[str]:
    """The addresses of an endpoint's host, in numeric order, those of IPv4 first; StoreError for none."""
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError as e:
        raise StoreError(f"the host {endpoint.host!r} is not known here: {e}") from e

    def order(address: str) -> tuple[int, bytes]:
        number = ipaddress.ip_address(address.partition("%")[0])
        return number.version, number.packed

    return sorted({str(address[0]) for *_, address in found}, key=order)


def is_own(address: str) -> bool:
    """Whether an address is one of this machine's: whether a socket can be bound to it."""
    try:
        bound(address, 0).close()
    except OSError:
        return False
    return True


def usual_address() -> str:
    """The address from which this machine reaches strangers; its name, where it reaches none."""
    try:
        return address_towards("192.0.2.1", 9)  # nobody has this one (RFC 5737)
    except OSError:
        return socket.gethostname()
