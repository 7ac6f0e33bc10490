"""The connections of a TCPStore: each call uses one alone, so that a blocked one holds up no other.

They are opened when needed, kept for the next call, and never shared with a forked child.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from . import handshake
from .connection import Broken, Connection, TooLarge

_IDLE = 4  # connections that are kept for later


class Pool:
    """Connections to one server, proved by one secret, under one client id."""

    def __init__(self, host: str, port: int, *, secret: bytes) -> None:
        self._host = host
        self._port = port
        self._secret = secret
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False
        self._process = os.getpid()
        self.client = handshake.new_id()

    @contextlib.contextmanager
    def connection(self, *, timeout: float) -> Iterator[Connection]:
        """One for the caller alone; opened within `timeout` seconds if there is none.

        Raises Broken, or handshake.Unproven. After an exception in the block it is not used again.
        """
        connection = self._take() or self._open(timeout)
        try:
            yield connection
        except Broken:
            # The others that wait here have most likely broken with it.
            self._forget(connection)
            self._close_idle()
            raise
        except TooLarge:
            self._give_back(connection)
            raise
        except BaseException:
            self._forget(connection)
            raise
        self._give_back(connection)

    def close(self) -> None:
        """Closes all of them, those in use too: their calls raise Broken."""
        with self._lock:
            self._closed = True
            busy = tuple(self._busy)
        self._close_idle()
        for connection in busy:
            connection.close()

    def _take(self) -> Connection | None:
        with self._lock:
            if self._process != os.getpid():
                self._after_fork()
            if self._closed:
                raise Broken("the store is closed")
            if not self._idle:
                return None
            connection = self._idle.pop()
            self._busy.add(connection)
            return connection

    def _open(self, timeout: float) -> Connection:
        connection = Connection(
            self._host, self._port, secret=self._secret, client=self.client, timeout=timeout
        )
        with self._lock:
            if not self._closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise Broken("the store is closed")

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _after_fork(self) -> None:
        """The parent goes on with its connections and its client id; the child begins with none of them."""
        for connection in (*self._idle, *self._busy):
            connection.abandon()
        self._idle, self._busy = [], set()
        self._process = os.getpid()
        self.client = handshake.new_id()
