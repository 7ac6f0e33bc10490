"""One connection of a TCPStore to its server, used by one call at a time.

It says whether it broke (`Broken`: the question may be asked again on another one) or was refused for good
(`handshake.Unproven`). While it waits for an answer it asks from time to time whether the server is still
there, so that a frozen server or a cut network is noticed.
"""

from __future__ import annotations

import contextlib
import socket
import time

from . import handshake, sockets
from .limits import Limits
from .messages import (
    LENGTH,
    Answer,
    Garbled,
    Op,
    Request,
    frame_length,
    framed,
    read_answer,
    request_frame,
)

_PING = 0  # the number of pings; no question has it


class Broken(Exception):
    """The connection is of no use any more; the text says why."""


class TooLarge(Exception):
    """The server does not take so many bytes at once; the connection is as good as before."""


class Connection:
    """Open, and proved. Close it after use, and at once after an exception of any kind."""

    def __init__(self, host: str, port: int, *, secret: bytes, client: bytes, timeout: float) -> None:
        """Connect within `timeout` seconds. Raises Broken, or handshake.Unproven for a wrong secret."""
        self.instance = b""
        self._asked = 0
        self._frame = 0
        deadline = time.monotonic() + timeout
        try:
            self._socket = sockets.connect(host, port, timeout=timeout)
        except OSError as e:
            raise Broken(e.strerror or str(e)) from e
        try:
            self._prove(secret, client, deadline)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Request, *, deadline: float, heartbeat: float) -> Answer:
        """The answer. Broken where there is none by `deadline`, or no word for three heartbeats."""
        frame = request_frame(request)
        if len(frame) - LENGTH > self._frame:
            raise TooLarge(f"a request of {len(frame)} bytes, where the server takes {self._frame} at once")
        self._send(frame, 3 * heartbeat)
        silent = 0
        while True:
            body = self._receive(min(heartbeat, deadline - time.monotonic()), rest=3 * heartbeat)
            if body is None:
                silent += 1
                if silent >= 3:
                    raise Broken(f"no word from the server for {3 * heartbeat:g} s")
                if time.monotonic() >= deadline:
                    raise Broken("no answer in time")
                self._send(request_frame(Request(_PING, Op.PING)), heartbeat)
                continue
            silent = 0
            try:
                answer = read_answer(body)
            except Garbled as e:
                raise Broken(str(e)) from e
            if answer.number == request.number:
                return answer
            if answer.number != _PING:
                raise Broken(f"an answer to question {answer.number}, where {request.number} was asked")

    def next_number(self) -> int:
        """The number of the next question on this connection."""
        self._asked += 1
        return self._asked

    def close(self) -> None:
        """Also from another thread: a blocked `ask` raises Broken then."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def abandon(self) -> None:
        """Give up this process's copy of a connection that belongs to its parent."""
        self._socket.close()

    def _prove(self, secret: bytes, client: bytes, deadline: float) -> None:
        try:
            hello = handshake.read_hello(self._handshake(deadline))
            claim = handshake.Claim(client, handshake.new_challenge())
            self._send(framed(claim.body(secret, hello)), max(0.1, deadline - time.monotonic()))
            handshake.check_welcome(self._handshake(deadline), secret, hello, claim)
        except Garbled as e:
            raise Broken(f"what answers there is no store, or one of another version: {e}") from e
        self.instance = hello.instance
        self._frame = hello.frame

    def _handshake(self, deadline: float) -> bytes:
        left = deadline - time.monotonic()
        body = self._receive(left, rest=left, limit=handshake.LONGEST)
        if body is None:
            raise Broken("no answer to the handshake in time")
        return body

    def _send(self, data: bytes, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(data)
        except OSError as e:
            raise Broken(e.strerror or str(e)) from e

    def _receive(self, timeout: float, *, rest: float, limit: int = Limits.LARGEST_FRAME) -> bytes | None:
        """The body of the next frame; None where none begins within `timeout`. Raises Broken.

        Broken as well where a frame that has begun does not go on within `rest` seconds.
        """
        try:
            self._socket.settimeout(max(0.001, timeout))
            try:
                first = self._socket.recv(1)
            except TimeoutError:
                return None
            if not first:
                raise Broken("the server has closed the connection")
            self._socket.settimeout(max(0.001, rest))
            head = first + self._exactly(LENGTH - 1)
            return self._exactly(frame_length(head, limit=limit))
        except OSError as e:
            raise Broken(e.strerror or str(e)) from e
        except Garbled as e:
            raise Broken(str(e)) from e

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(min(count - len(data), 1 << 20))
            if not more:
                raise Broken("the server has closed the connection")
            data += more
        return bytes(data)
