"""How a connection comes to be: the addresses of a name in turn, TLS, and the server's first words.

A connection counts only when the server has sent its HTTP/2 settings, so a call that waited for one that
never came to be has certainly changed nothing. Nothing here repeats: that is `channels`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

from elastic.etcd.http2 import Connection

# Seconds that an address of a name has to accept the connection before the next one is tried.
_ADDRESS_SECONDS = 1.5


async def connect(
    host: str, port: int, *, tls: ssl.SSLContext | None, name: str | None, authority: str
) -> Connection:
    """A connection on which calls can begin. `name` is the one expected in the certificate.

    Raises OSError. Takes as long as it takes: cancel it.
    """
    connection = Connection(scheme="https" if tls else "http", authority=authority)
    reached = await _reach(host, port)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: connection, sock=reached, ssl=tls, server_hostname=(name or host) if tls else None
        )
        reason = await connection.ready
        if reason:
            raise ConnectionError(reason)
    except BaseException:
        connection.close()
        raise
    return connection


async def _reach(host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of the host that accepts. Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError("it has no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses, start=1):
        patience = _ADDRESS_SECONDS if number < len(addresses) else None
        reached = socket.socket(family, kind, protocol)
        try:
            reached.setblocking(False)
            await asyncio.wait_for(loop.sock_connect(reached, address), patience)
        except asyncio.TimeoutError:
            reached.close()
            failure = OSError("it does not answer")
        except OSError as error:
            reached.close()
            failure = error
        except BaseException:
            reached.close()
            raise
        else:
            return reached
    raise failure
