"""One connection of a TCPStoreServer: what has arrived, what is still to be sent, and until when."""

from __future__ import annotations

import contextlib
import selectors
import socket

from . import handshake
from .messages import framed, take_frame

_CHUNK = 65536


class Peer:
    """Never blocks. Its buffers hold at most a frame and a chunk each way, as its owner keeps to `interest`.

    `client` is who it has proved to be; empty before. `deadline` is when it is cut unless it makes progress.
    """

    def __init__(
        self, number: int, connected: socket.socket, hello: handshake.Hello, *, deadline: float
    ) -> None:
        self.id = number
        self.socket = connected
        self.hello = hello
        self.client = b""
        self.deadline: float | None = deadline
        self.outgoing = bytearray()
        self._arrived = bytearray()
        self.watched = selectors.EVENT_READ
        self._progress = False
        connected.setblocking(False)

    def interest(self) -> int:
        """What to wait for: nothing is read before the last answer is taken."""
        return selectors.EVENT_WRITE if self.outgoing else selectors.EVENT_READ

    def receive(self) -> bool:
        """Reads what there is; False at the end of the connection. Raises OSError."""
        try:
            data = self.socket.recv(_CHUNK)
        except BlockingIOError:
            return True
        self._arrived += data
        return bool(data)

    def take_frame(self, limit: int) -> bytes | None:
        """The next whole frame's body. Before the client has proved who it is, only small ones are taken."""
        body = take_frame(self._arrived, limit=limit if self.client else handshake.LONGEST)
        self._progress |= body is not None
        return body

    def send(self, frame: bytes) -> None:
        """Sends as much as goes now, and keeps the rest. Raises OSError."""
        self.outgoing += frame
        self.flush()

    def send_body(self, body: bytes) -> None:
        """Sends a body as a frame."""
        self.send(framed(body))

    def farewell(self, body: bytes) -> None:
        """Sends a last word, if it goes without waiting."""
        with contextlib.suppress(OSError):
            self.socket.send(framed(body))

    def flush(self) -> None:
        """Sends more of what is kept. Raises OSError."""
        if not self.outgoing:
            return
        with contextlib.suppress(BlockingIOError):
            sent = self.socket.send(self.outgoing)
            del self.outgoing[:sent]
            self._progress |= sent > 0

    def mark_progress(self, now: float, *, stall: float | None) -> None:
        """Sets the deadline: for a frame that is half here, and for an answer that is half taken.

        A frame must be whole in `stall` seconds; an answer goes on as long as some of it is taken in that
        time. Without a `stall` (in the handshake) the deadline stays.
        """
        if stall is None:
            return
        if not self._arrived and not self.outgoing:
            self.deadline = None
        elif self.deadline is None or self._progress:
            self.deadline = now + stall
        self._progress = False
