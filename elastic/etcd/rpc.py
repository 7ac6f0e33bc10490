"""One gRPC call: its messages, and how it ended, apart from the connection that carries it.

It frames and finds messages and knows what a server's headers say of the end of a call. It sends nothing by
itself and knows nothing of HTTP/2's frames and windows: that is `http2`.
"""

from __future__ import annotations

import asyncio
import struct
import urllib.parse
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from elastic.etcd.errors import Code

Metadata = tuple[tuple[str, str], ...]

LONGEST_MESSAGE = 64 << 20

_GRPC_CODES = {str(code.value): code for code in Code}
_HTTP_CODES = {
    "400": Code.INTERNAL,
    "401": Code.UNAUTHENTICATED,
    "403": Code.PERMISSION_DENIED,
    "404": Code.UNIMPLEMENTED,
    "429": Code.UNAVAILABLE,
    "502": Code.UNAVAILABLE,
    "503": Code.UNAVAILABLE,
    "504": Code.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended. `unsent` says that the server has certainly not begun to carry it out."""

    code: Code
    details: str
    unsent: bool = False


class CallEnded(Exception):
    """A call ended other than well."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.details)
        self.status = status


class Carrier(Protocol):
    """What a stream needs of its connection."""

    def pump(self, stream: Stream) -> None:
        """Sends of the stream's outbox what can be sent now."""

    def forget(self, stream: Stream, *, settled: bool) -> None:
        """The call is over for us: the server is told, if it is not `settled` between us."""


class Stream:
    """One call: send messages, receive messages until it ends; made by `http2.Connection.open`."""

    __slots__ = (
        "_connection",
        "_inbox",
        "_partial",
        "_waiter",
        "heard",
        "last",
        "number",
        "outbox",
        "status",
    )

    def __init__(self, connection: Carrier, number: int) -> None:
        self.number = number
        self.heard = asyncio.get_running_loop().time()
        self.status: Status | None = None
        self.outbox = bytearray()
        self.last = False
        self._connection = connection
        self._inbox: deque[bytes] = deque()
        self._partial = bytearray()
        self._waiter: asyncio.Future[None] | None = None

    def send(self, message: bytes, *, last: bool = False) -> None:
        """Sends a message; `last` says that no other follows. Nothing if the call has ended."""
        self.outbox += struct.pack(">BI", 0, len(message)) + message
        self.last = last
        self._connection.pump(self)

    async def receive(self) -> bytes | None:
        """The next message; None when the call has ended well. Raises CallEnded if it ended otherwise."""
        while not self._inbox:
            if self.status is not None:
                if self.status.code is Code.OK:
                    return None
                raise CallEnded(self.status)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._inbox.popleft()

    def end(self, status: Status, *, by_server: bool = False) -> None:
        """The call ends now, as far as we are concerned; the first status counts."""
        if self.status is None:
            self.status = status
            self._connection.forget(self, settled=by_server and self.last and not self.outbox)
        self._wake()

    def expire(self) -> None:
        """The time given to the call has passed."""
        self.end(Status(Code.DEADLINE_EXCEEDED, "no answer in time"))

    def cancel(self) -> None:
        """We want no more of it. Idempotent."""
        self.end(Status(Code.CANCELLED, "cancelled"))

    def take(self, data: bytes) -> None:
        """What came in, cut anywhere."""
        self.heard = asyncio.get_running_loop().time()
        self._partial += data
        while len(self._partial) >= 5:
            packed, size = struct.unpack_from(">BI", self._partial)
            if packed:
                self.end(Status(Code.INTERNAL, "the answer is compressed, which was not asked for"))
                return
            if size > LONGEST_MESSAGE:
                text = f"Received message larger than max ({size} vs. {LONGEST_MESSAGE})"
                self.end(Status(Code.RESOURCE_EXHAUSTED, text))
                return
            if len(self._partial) < 5 + size:
                return
            self._inbox.append(bytes(self._partial[5 : 5 + size]))
            del self._partial[: 5 + size]
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def read_status(headers: Mapping[str, str]) -> Status | None:
    """The end of a call, if these headers tell it: gRPC's own, or that of a server that knows no gRPC."""
    code = headers.get("grpc-status")
    if code is not None:
        return Status(
            _GRPC_CODES.get(code, Code.UNKNOWN), urllib.parse.unquote(headers.get("grpc-message", ""))
        )
    http = headers.get(":status")
    if http is None or http == "200":
        return None
    return Status(_HTTP_CODES.get(http, Code.UNKNOWN), f"it answered with HTTP status {http}")
