"""Members of the cluster beyond the endpoints given: which of them may be used, and taking them in.

A member says itself where its clients find it, and may be wrong: an address of the loopback is another
machine's etcd, a name may not resolve here. So only an address that answers as that very member is taken,
and only as a reserve: it is used while none of the endpoints given is in good standing.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable, Sequence

from elastic.etcd import errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.calls import Caller, Repeat
from elastic.etcd.channels import Line
from elastic.etcd.values import Member
from elastic.utils.endpoints import Endpoint, parse_endpoints

# Seconds that one address has to answer.
_LOOK_SECONDS = 1.0


async def sync(caller: Caller, given: Sequence[Endpoint], *, secure: bool, timeout: float) -> None:
    """See `Client.sync`. For the client's loop."""
    deadline = time.monotonic() + timeout
    request = pb.MemberListRequest(linearizable=True)
    asked = await caller.ask(wire.MEMBER_LIST, request, repeat=Repeat.READ, timeout=timeout)
    answer, pool = asked.response, caller.pool
    known = {line.endpoint for line in pool.lines()}
    for endpoint, member in addresses(map(wire.member, answer.members), given=given, secure=secure).items():
        seconds = min(deadline - time.monotonic(), _LOOK_SECONDS)
        if endpoint in known or seconds <= 0:
            continue
        line = pool.open(endpoint)
        if not await _is_member(caller, line, member, cluster=answer.header.cluster_id, timeout=seconds):
            await line.close()
            continue
        await pool.adopt(line)


async def _is_member(caller: Caller, line: Line, member: int, *, cluster: int, timeout: float) -> bool:
    try:
        status = await caller.pool.call(line, wire.STATUS, pb.StatusRequest(), timeout=timeout)
    except errors.EtcdError:
        return False
    return (status.header.cluster_id, status.header.member_id) == (cluster, member)


def addresses(members: Iterable[Member], *, given: Sequence[Endpoint], secure: bool) -> dict[Endpoint, int]:
    """Where the voting members say they are, with their ids: what could be reached from here. Pure.

    Addresses with or without TLS as those given, and of this machine only if one of those given is, too.
    """
    near = any(_is_near(endpoint.host) for endpoint in given)
    found: dict[Endpoint, int] = {}
    for member in members:
        for url in member.client_urls if not member.learner else ():
            try:
                [endpoint] = parse_endpoints(url, default_port=given[0].port)
            except ValueError:
                continue  # a unix socket, say
            if endpoint.secure == secure and (near or not _is_near(endpoint.host)):
                # As those given are written, so that the same address is the same endpoint.
                found[Endpoint(given[0].scheme, endpoint.host, endpoint.port)] = member.id
    return found


def _is_near(host: str) -> bool:
    """Whether the address means whichever machine uses it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
