"""Endpoints as users write them: one parser for every `host:port` list of the project.

Pure: it splits and checks text, and never resolves a name or opens a connection. It knows IPv6, bare and
bracketed, with and without a scope id, because text cut at the first colon is the classic fault here.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

SCHEMES = ("etcd", "http", "https")

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_SCOPE = re.compile(r"[A-Za-z0-9_.~-]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server: `scheme` is `etcd` or `http` (plain) or `https` (TLS); `host` is without brackets."""

    scheme: str
    host: str
    port: int

    @property
    def secure(self) -> bool:
        """Whether the scheme asks for TLS."""
        return self.scheme == "https"

    def __str__(self) -> str:
        """As `host_and_port`."""
        return host_and_port(self.host, self.port)


def host_and_port(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_endpoints(text: str, *, default_port: int) -> tuple[Endpoint, ...]:
    """The endpoints of a comma-separated list, in order, each one once.

    Each is `[scheme://]host[:port]`: the scheme `etcd` (the default), `http` or `https`; the host a name,
    an IPv4 address or an IPv6 address, which needs brackets only if a port follows. A missing port is
    `default_port`. A scheme counts for its own endpoint only. Raises ValueError, in one sentence, for
    anything else.
    """
    endpoints = [_parse_one(part.strip(), text=text, default_port=default_port) for part in text.split(",")]
    return tuple(dict.fromkeys(endpoints))


def _parse_one(part: str, *, text: str, default_port: int) -> Endpoint:
    if not part:
        where = f" in {text!r}" if text.strip() else ""
        raise ValueError(f"empty endpoint{where}: expected host:port, or a comma-separated list of them")
    scheme, found, rest = part.partition("://")
    if not found:
        scheme, rest = "etcd", part
    elif scheme.lower() not in SCHEMES:
        raise ValueError(
            f"endpoint {part!r} has the unknown scheme {scheme!r}: use etcd://, http:// or https://"
        )
    rest = rest.removesuffix("/")
    host, port = _split(rest, part=part)
    return Endpoint(scheme.lower(), _host(host, part=part), _port(port, part=part, default=default_port))


def _split(rest: str, *, part: str) -> tuple[str, str | None]:
    """Host and port texts; no port is None, which is not the same as an empty one."""
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError(
                f"endpoint {part!r} has unbalanced brackets: write an IPv6 endpoint as [host]:port"
            )
        if ":" not in host:
            raise ValueError(f"endpoint {part!r} has brackets around {host!r}, which is not an IPv6 address")
        return host, tail[1:] if tail else None
    if rest.count(":") > 1:
        return rest, None
    host, colon, port = rest.partition(":")
    return host, port if colon else None


def _host(host: str, *, part: str) -> str:
    if not host:
        raise ValueError(f"endpoint {part!r} has no host: expected host:port")
    if ":" in host:
        address, percent, scope = host.partition("%")
        try:
            ipaddress.IPv6Address(address)
        except ValueError as error:
            raise ValueError(
                f"endpoint {part!r}: {host!r} is not an IPv6 address; with a port, write [host]:port"
            ) from error
        if percent and not _SCOPE.fullmatch(scope):
            raise ValueError(
                f"endpoint {part!r} has the invalid scope id {scope!r}: expected an interface name"
            )
        return host.lower() if not percent else f"{address.lower()}%{scope}"
    labels = host.removesuffix(".").split(".")
    if labels[-1].isdigit():
        # All-numeric last labels are addresses by every resolver's rule, so a wrong one is a typing error.
        try:
            ipaddress.IPv4Address(host)
        except ValueError as error:
            raise ValueError(
                f"endpoint {part!r}: {host!r} is neither an IPv4 address nor a host name"
            ) from error
    elif len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"endpoint {part!r}: {host!r} is not a host name or an address")
    return host


def _port(port: str | None, *, part: str, default: int) -> int:
    if port is None:
        return default
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(
            f"endpoint {part!r} has the invalid port {port!r}: expected a number from 1 to 65535"
        )
    return int(port)
