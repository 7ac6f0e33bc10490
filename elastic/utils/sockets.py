"""Sockets on the loopback interface. Asks no resolver: a container may not know the name localhost."""

from __future__ import annotations

import socket

_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def get_socket_with_port() -> socket.socket:
    """A socket that listens on a free port of the loopback interface, IPv4's or else IPv6's.

    The caller closes it. Its port is ``getsockname()[1]``, and stays taken until then.

    Raises:
        RuntimeError: Neither family has a port to listen on; the cause says why.
    """
    refusals: list[str] = []
    for family, address in _LOOPBACK:
        try:
            return socket.create_server((address, 0), family=family)
        except OSError as error:  # noqa: PERF203 - two turns at most
            refusals.append(f"{address}: {error}")
    raise RuntimeError(
        f"no port of the loopback interface can be listened on ({'; '.join(refusals)}): "
        "bring that interface up, or raise the limit on open files"
    )
