"""One HTTP/2 connection that carries gRPC calls: the h2 library's protocol over an asyncio transport.

It sends and receives, and ends the calls that it carries when it ends. It never connects, never retries and
knows no method: that is `dial`, `channels` and what stands on them. All of it runs in the client's loop.

No pings are sent: calls have deadlines, and a watch asks for progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from elastic.etcd.errors import Code
from elastic.etcd.rpc import CallEnded, Metadata, Status, Stream, read_status

_HEADERS = (("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "elastic-etcd"))
_STREAM_WINDOW = 4 << 20
_CONNECTION_WINDOW = 16 << 20
# Milliseconds after which the system gives up a connection on which sent data is not acknowledged.
_UNACKNOWLEDGED_MS = 9000
# Bytes before a frame's content: the first three are the length of that.
_FRAME_HEAD = 9
# HTTP/2 counts calls up to here; the next one needs a new connection.
_LAST_STREAM = (1 << 31) - 1


class Connection(asyncio.Protocol):
    """A connection to one server; made by `dial.connect`.

    `ready` is done when calls can begin, with "", or when they never will, with the reason; `lost` when the
    connection is gone. `usable` says whether calls can begin now, `heard` when the server last said anything.
    """

    def __init__(self, *, scheme: str, authority: str) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[str] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.usable = False
        self.heard = 0.0
        self._loop = loop
        self._pseudo = ((":method", "POST"), (":scheme", scheme), (":authority", authority))
        self._streams: dict[int, Stream] = {}
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._http.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            },
        )

    # Calls

    def open(self, path: str, metadata: Metadata, *, timeout: float | None = None) -> Stream:
        """Begins a call. `timeout` in seconds is told to the server. Raises CallEnded if none can begin."""
        if not self.usable:
            raise CallEnded(Status(Code.UNAVAILABLE, "the connection is over", unsent=True))
        headers = [*self._pseudo, (":path", path), *_HEADERS, *metadata]
        if timeout is not None:
            headers.append(("grpc-timeout", f"{max(int(timeout * 1000), 1)}m"))
        try:
            number = self._http.get_next_available_stream_id()
            self._http.send_headers(number, headers)
        except h2.exceptions.ProtocolError as error:
            raise CallEnded(Status(Code.UNAVAILABLE, f"no call can begin: {error}", unsent=True)) from error
        stream = self._streams[number] = Stream(self, number)
        if number + 2 > _LAST_STREAM:
            self.usable = False
        return stream

    def pump(self, stream: Stream) -> None:
        """What the server's windows let through; the rest when they open."""
        if stream.status is not None:
            return
        while stream.outbox:
            room = min(
                self._http.local_flow_control_window(stream.number), self._http.max_outbound_frame_size
            )
            if room <= 0:
                break
            piece = bytes(stream.outbox[:room])
            del stream.outbox[:room]
            self._http.send_data(stream.number, piece, end_stream=stream.last and not stream.outbox)
        self._flush()

    def forget(self, stream: Stream, *, settled: bool) -> None:
        """See `rpc.Carrier`."""
        if self._streams.pop(stream.number, None) is None:
            return
        if not settled:
            with contextlib.suppress(h2.exceptions.ProtocolError):  # the server has reset it
                self._http.reset_stream(stream.number, h2.errors.ErrorCodes.CANCEL)
            self._flush()
        self._close_if_done()

    def retire(self) -> None:
        """Lets no further call begin; the connection ends with the last one that runs."""
        self.usable = False
        self._close_if_done()

    def close(self) -> None:
        """Takes leave of the server and ends the connection and every call on it, at once. Idempotent."""
        self.usable = False
        if self._transport is not None and not self._transport.is_closing():
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._http.close_connection()
            self._flush()
            self._transport.abort()

    def _close_if_done(self) -> None:
        if not self.usable and not self._streams and self.ready.done():
            self.close()

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            data = self._http.data_to_send()
            if data:
                self._transport.write(data)

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport, as asyncio documents
        connection = transport.get_extra_info("socket")
        if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_CONNECTION_WINDOW)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        self._received += data
        try:
            # Frame by frame, for h2 is ahead of the events that it returns: what it has seen end cannot be
            # sent to any more, and a frame that it refuses costs the events of those before.
            while frame := self._next_frame():
                for event in self._http.receive_data(frame):
                    self._handle(event)
        except h2.exceptions.ProtocolError as error:
            self._fail(f"it does not speak HTTP/2 as it should: {error}")
        self._flush()

    def _next_frame(self) -> bytes:
        """The next whole frame of what came in; b"" if there is none yet."""
        if len(self._received) < _FRAME_HEAD:
            return b""
        size = int.from_bytes(self._received[:3], "big")
        if size > self._http.max_inbound_frame_size:
            size = 0  # h2 refuses it by its head
        if len(self._received) < _FRAME_HEAD + size:
            return b""
        frame = bytes(self._received[: _FRAME_HEAD + size])
        del self._received[: _FRAME_HEAD + size]
        return frame

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection is lost: {explain(exc)}" if exc else "the connection was closed")
        if not self.lost.done():
            self.lost.set_result(None)

    def _fail(self, reason: str, *, begun: int = _LAST_STREAM) -> None:
        """The connection is over. The server has begun no call with a number above `begun`."""
        self.usable = False
        self._received.clear()
        if not self.ready.done():
            self.ready.set_result(reason)
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.end(Status(Code.UNAVAILABLE, reason, unsent=stream.number > begun))
        if self._transport is not None:
            self._flush()
            self._transport.abort()

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            # Also of a call that is over for us: the connection's window is that of every call.
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.take(event.data)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self._read_headers(self._streams.get(event.stream_id), event)
        elif isinstance(event, h2.events.StreamEnded):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                stream.end(Status(Code.INTERNAL, "the answer ended without a status"), by_server=True)
        elif isinstance(event, h2.events.StreamReset):
            stream = self._streams.get(event.stream_id)
            if stream is not None:
                refused = event.error_code == h2.errors.ErrorCodes.REFUSED_STREAM
                text = f"the server ended the call with HTTP/2 error {int(event.error_code)}"
                stream.end(Status(Code.UNAVAILABLE, text, unsent=refused), by_server=True)
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            if isinstance(event, h2.events.RemoteSettingsChanged) and not self.ready.done():
                self.usable = True
                self.ready.set_result("")
            for stream in list(self._streams.values()):
                if stream.outbox:
                    self.pump(stream)
        elif isinstance(event, h2.events.ConnectionTerminated):
            # h2 takes nothing more on this connection. What was under way is of unknown outcome.
            begun = event.last_stream_id if event.last_stream_id is not None else _LAST_STREAM
            said = (event.additional_data or b"").decode("ascii", "replace")
            self._fail(f"the server closed the connection{f' ({said})' if said else ''}", begun=begun)

    def _read_headers(
        self, stream: Stream | None, event: h2.events.ResponseReceived | h2.events.TrailersReceived
    ) -> None:
        if stream is None:
            return
        status = read_status({name.decode(): text.decode("utf-8", "replace") for name, text in event.headers})
        if status is not None:
            stream.end(status, by_server=True)


def explain(error: BaseException) -> str:
    """What went wrong with a connection, for people."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
