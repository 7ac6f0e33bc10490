"""Addresses and ports of this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket


def address_towards(host: str, port: int) -> str:
    """The local address from which this machine reaches a host; other hosts on that way reach it there.

    Sends nothing: connecting a datagram socket only asks the kernel for its route. Raises OSError
    where the name does not resolve or there is no route.
    """
    errors: list[OSError] = []
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, proto) as probe:
            try:
                probe.connect(address)
            except OSError as e:
                errors.append(e)
                continue
            return str(probe.getsockname()[0])
    raise errors[0] if errors else OSError(f"{host} has no address")


def is_loopback(address: str) -> bool:
    """Whether an address, with a zone or without, is one of the loopback interface's."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def knows_itself_by_loopback(host: str, address: str) -> bool:
    """Whether `host`, which is `address` here, is a name of this machine that others reach elsewhere.

    Many machines know their own name as an address of the loopback, such as 127.0.1.1. Names that mean the
    loopback itself are none of these.
    """
    means_loopback = re.fullmatch(r"localhost(\..*)?|.*\.localhost|ip6-(localhost|loopback)", host)
    return host != address and means_loopback is None and is_loopback(address)


class ReservedPort:
    """A free port of this machine, kept so by a bound socket that does not listen.

    The socket has SO_REUSEADDR, so a server that sets it as well (as the frameworks' stores do) can
    listen on the port while it is reserved, and the kernel gives the port to nobody else.
    """

    def __init__(self, address: str) -> None:
        """Reserve a port of `address`, or of all addresses where that one is not this machine's own."""
        for host in (address, ""):
            with contextlib.suppress(OSError):
                self._socket = bound(host, 0)
                break
        else:
            raise OSError("no free port")
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Let the port go. May be called again."""
        self._socket.close()


def bound(host: str, port: int) -> socket.socket:
    """A socket that has the port (0: any free one) and does not listen; a server with SO_REUSEADDR may.

    Raises OSError where the address is not this machine's, or the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held
