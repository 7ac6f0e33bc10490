"""Sockets of a TCPStore and its server: listening, connecting, and peers that vanish."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from elastic.utils.endpoints import host_and_port

_IDLE, _INTERVAL, _PROBES = 15, 5, 3  # a peer that is gone is noticed after 30 s
_TRIES = 8  # for a port that is free on every host


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on the first address of a host that is this machine's, and on no other.

    Port 0 is any free one. Raises OSError, in words.
    """
    errors: list[OSError] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as e:
        raise OSError(f"cannot listen on {host_and_port(host, port)}: {e}") from e
    for family, kind, proto, _, address in found:
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(4096)
        except OSError as e:
            listener.close()
            errors.append(e)
            continue
        listener.setblocking(False)
        return listener
    raise OSError(f"cannot listen on {host_and_port(host, port)}: {errors[0]}") from errors[0]


def listen_on_all(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """As `listen`, on the same port of each host."""
    for tries_left in reversed(range(_TRIES)):
        listeners: list[socket.socket] = []
        try:
            for host in hosts:
                listeners.append(listen(host, listeners[0].getsockname()[1] if listeners else port))
        except OSError:
            for listener in listeners:
                listener.close()
            if port or not listeners or not tries_left:
                raise
        else:
            return listeners
    raise AssertionError("the last try returns or raises")


def connect(host: str, port: int, *, timeout: float) -> socket.socket:
    """A connection to a host, by any of its addresses. Raises OSError."""
    try:
        connected = socket.create_connection((host, port), timeout=timeout)
    except UnicodeError as e:
        raise OSError(f"{host!r} is not a host name: {e}") from e
    try:
        if connected.getsockname() == connected.getpeername():
            # To a port of the range for outgoing connections, TCP can connect to itself.
            raise ConnectionRefusedError("nothing listens there")
        keep_alive(connected)
    except OSError:
        connected.close()
        raise
    return connected


def keep_alive(connected: socket.socket) -> None:
    """Have the kernel notice a peer that vanished, and send small messages at once."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE),
        ("TCP_KEEPINTVL", _INTERVAL),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", 1000 * (_IDLE + _INTERVAL * _PROBES)),
    ):
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
