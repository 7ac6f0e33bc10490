"""Who runs the store of a rendezvous without a service of its own: the agent that has the endpoint's address.

A name is never compared with a name. The agent tries to bind the address: where it is not this machine's,
or the port is taken (by the store of another agent here), it is a client. Of several addresses of a name only
the first, in numeric order, is for the store, so that no two machines of one name run two.

Many machines know their own name as an address of the loopback, where no other machine gets to. The store of
such a name listens there, so that there is one, and at the address by which others reach the machine.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from elastic.store import Store, StoreDeniedError, StoreError, TCPStore, TCPStoreServer
from elastic.utils.endpoints import Endpoint
from elastic.utils.network import address_towards, bound, is_loopback, knows_itself_by_loopback

_LEAVING_SECONDS = 5.0  # for the others to hear that who runs the store goes
_GOODBYE_SECONDS = 0.2  # for the server to see that this agent's own connections are closed
_RESOLVE_PAUSE = 0.2  # between two questions for a name

log = logging.getLogger("elastic.rendezvous")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a store is used: seconds for connecting and for one call, and what clients must know.

    An agent elsewhere that runs the store may start later: it is waited for as many seconds as `patience`
    says (None: `connect`), which is told after `progress` of them.
    """

    connect: float
    call: float
    patience: float | None = None
    progress: float = 5.0
    secret: str = ""
    secret_file: Path | None = None


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store, what messages call it, and how to free it, told how long a server waits for its clients.

    `address` is where other nodes reach this one on the way to the store; "" where there is no way.
    `listens_on` is where its server is reached on this machine, if this process runs it.
    """

    store: Store
    place: str
    release: Callable[[float], None]
    address: str = ""
    listens_on: str = ""


def open_tcp(
    endpoint: Endpoint, access: Access, *, is_host: bool | None, local_addr: str | None = None
) -> OpenStore:
    """A store at an endpoint, which this agent runs where `is_host` says so, or the address is its own.

    Port 0 is any free one of this machine. A host name may become known, and an agent elsewhere may start,
    a little later. StoreError, in one sentence, where there is no store then.
    """
    found = _host(endpoint, access, is_host=is_host, local_addr=local_addr)
    server = found.server
    host, port = (endpoint.host, endpoint.port) if server is None else (server.host, server.port)
    place = f"the store at {Endpoint('etcd', endpoint.host, port)}, which runs in the agent on that host,"
    obstacle = found.obstacle
    limit, setting = access.connect, "connect_timeout"
    if found.may_come and access.patience is not None:
        limit, setting = access.patience, "join_timeout"
    try:
        client = _connected(host, port, access, place=place, limit=limit, obstacle=obstacle)
    except StoreError as e:
        if server is not None:
            server.close()
        if isinstance(e, StoreDeniedError):
            raise
        raise StoreError(f"{place} does not answer within {limit:g} s ({setting}): {e}{obstacle}") from e
    client.set_timeout(timedelta(seconds=access.call))
    if server is not None:
        places = [str(Endpoint("etcd", at, port)) for at in (host, found.outward) if at]
        log.info("this agent runs the store of the rendezvous, at %s", " and ".join(places))

    def release(linger: float) -> None:
        client.close()
        if server is not None:
            if linger and server.wait_for_goodbyes(_GOODBYE_SECONDS):
                log.info("the store of the rendezvous stays for %g s at most, until others have left", linger)
            server.close(linger=linger)

    own = "" if server is None else server.host
    return OpenStore(client, place, release, address=found.outward or own, listens_on=own)


def _connected(host: str, port: int, access: Access, *, place: str, limit: float, obstacle: str) -> TCPStore:
    """A client, within `limit` seconds; that it takes long is said once."""

    def connect(seconds: float) -> TCPStore:
        return TCPStore(
            host,
            port,
            timeout=timedelta(seconds=seconds),
            heartbeat=access.call / 2,  # so a server that is frozen is noticed within half a ttl
            secret=access.secret or None,
            secret_file=access.secret_file,
        )

    silently = min(limit, access.progress)
    try:
        return connect(silently)
    except StoreDeniedError:
        raise
    except StoreError as e:
        left = limit - silently
        if left <= 0:
            raise
        log.warning(
            "%s does not answer (%s): waiting for it, for %g s at most%s",
            *(place, e.__cause__ or e, left, obstacle),
        )
    return connect(left)


@dataclass(frozen=True, slots=True)
class _Found:
    """The server, if this agent is to run one; else what to say if nobody else turns out to do so.

    `may_come`: an agent elsewhere runs it, which may start later than this one. `outward` is where other
    machines reach this one, if the endpoint's host does not say.
    """

    server: TCPStoreServer | None
    obstacle: str = ""
    may_come: bool = False
    outward: str = ""


def _host(endpoint: Endpoint, access: Access, *, is_host: bool | None, local_addr: str | None) -> _Found:
    """Run the server here, if this agent is to."""
    if is_host is False:
        return _Found(None, "; this agent does not run one, as is_host=0 says", may_come=True)
    address = resolved(endpoint, time.monotonic() + access.connect)[0]
    if not is_own(address):
        if not is_host:
            return _Found(
                None, f"; an agent on the machine with the address {address} runs it", may_come=True
            )
        if not local_addr:
            raise StoreError(
                f"{endpoint.host} ({address}) is no address of this machine, and is_host=1 says that this "
                "agent runs the store: give --local-addr the address of this machine that it stands for"
            )
        address = local_addr
    outward = _outward(endpoint.host, address, local_addr)
    try:
        server = TCPStoreServer(
            address,
            endpoint.port,
            also_on=outward or None,
            secret=access.secret or None,
            secret_file=access.secret_file,
        )
    except StoreError as e:
        if is_host:
            raise
        return _Found(None, f"; this agent cannot run it either: {e}", outward=outward)
    return _Found(server, outward=outward)


def _outward(host: str, address: str, local_addr: str | None) -> str:
    """Where other machines reach this one, whose own address `host` is; "" where that address says so."""
    if not knows_itself_by_loopback(host, address):
        return ""
    try:
        found = addresses_of(Endpoint("etcd", local_addr or usual_address(), 0))[0]
    except StoreError:
        return ""
    return "" if is_loopback(found) else found


def resolved(
    endpoint: Endpoint, deadline: float, *, pause: Callable[[float], object] = time.sleep
) -> list[str]:
    """The addresses of a host, which may become known a little later than the nodes start.

    StoreError where they are not by `deadline`, in monotonic seconds. What `pause` raises ends the wait.
    """
    while True:
        try:
            return addresses_of(endpoint)
        except StoreError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
        pause(min(_RESOLVE_PAUSE, left))


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
