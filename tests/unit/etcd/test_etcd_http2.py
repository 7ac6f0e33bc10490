"""Calls over one HTTP/2 connection, against the other end of one: how they end, and what that says."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.events
import pytest

from elastic.etcd.dial import connect
from elastic.etcd.errors import Code
from elastic.etcd.http2 import Connection
from elastic.etcd.rpc import CallEnded, Status, Stream

E = TypeVar("E", bound=h2.events.Event)

HEAD = ((":status", "200"), ("content-type", "application/grpc"))


class Peer:
    """The server's end of a connection: h2's own, sent and read by hand."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.http.initiate_connection()
        self.events: list[h2.events.Event] = []

    async def flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self.http.data_to_send())

    async def until(self, kind: type[E]) -> E:
        """The next event of that kind; those before it are dropped."""
        while True:
            while self.events:
                event = self.events.pop(0)
                if isinstance(event, kind):
                    return event
            data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
            assert data, "the client hung up"
            self.events.extend(self.http.receive_data(data))
            await self.flush()

    async def reset(self, number: int, error: int) -> None:
        self.http.reset_stream(number, error)
        await self.flush()

    async def answer(self, number: int, data: bytes, *, trailers: tuple[tuple[str, str], ...] = ()) -> None:
        self.http.send_headers(number, HEAD)
        self.http.send_data(number, data)
        if trailers:
            self.http.send_headers(number, trailers, end_stream=True)
        await self.flush()


def framed(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


def scenario(play: Callable[[Connection, Peer], Awaitable[None]]) -> None:
    """Plays it on a connection, within a bound, and leaves nothing behind."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            port = listener.getsockname()[1]
            connecting = asyncio.ensure_future(
                connect("127.0.0.1", port, tls=None, name=None, authority="etcd:1")
            )
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
            with accepted:
                accepted.setblocking(False)
                peer = Peer(accepted)
                await peer.flush()
                connection = await connecting
                try:
                    await play(connection, peer)
                finally:
                    connection.close()
                    await connection.lost

    asyncio.run(asyncio.wait_for(run(), 20))


async def begun(connection: Connection, peer: Peer, message: bytes = b"question") -> Stream:
    """A call whose request the peer has got."""
    stream = connection.open("/etcdserverpb.KV/Range", (("hasleader", "true"),), timeout=3)
    stream.send(message, last=True)
    await peer.until(h2.events.StreamEnded)
    return stream


async def ending(stream: Stream) -> Status:
    with pytest.raises(CallEnded) as caught:
        await stream.receive()
    return caught.value.status


def test_a_call_sends_what_grpc_prescribes_and_gets_its_answer() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = connection.open("/etcdserverpb.KV/Range", (("token", "t"),), timeout=1.5)
        stream.send(b"question", last=True)
        request = await peer.until(h2.events.RequestReceived)
        sent = {name.decode(): text.decode() for name, text in request.headers}
        assert sent == {
            ":method": "POST",
            ":scheme": "http",
            ":authority": "etcd:1",
            ":path": "/etcdserverpb.KV/Range",
            "te": "trailers",
            "content-type": "application/grpc",
            "user-agent": "elastic-etcd",
            "token": "t",
            "grpc-timeout": "1500m",
        }
        assert (await peer.until(h2.events.DataReceived)).data == framed(b"question")
        await peer.answer(stream.number, framed(b"answer"), trailers=(("grpc-status", "0"),))
        assert await stream.receive() == b"answer"
        assert await stream.receive() is None

    scenario(play)


def test_messages_are_found_however_they_are_cut() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        peer.http.send_headers(stream.number, HEAD)
        for byte in framed(b"one") + framed(b"") + framed(b"three"):
            peer.http.send_data(stream.number, bytes([byte]))
            await peer.flush()
        assert [await stream.receive() for _ in range(3)] == [b"one", b"", b"three"]

    scenario(play)


def test_a_request_larger_than_the_windows_goes_out_as_they_open() -> None:
    large = bytes(range(256)) * 2048

    async def play(connection: Connection, peer: Peer) -> None:
        stream = connection.open("/x", ())
        stream.send(large, last=True)
        got = bytearray()
        while len(got) < len(large) + 5:
            event = await peer.until(h2.events.DataReceived)
            got += event.data
            peer.http.acknowledge_received_data(event.flow_controlled_length, stream.number)
            await peer.flush()
        assert bytes(got) == framed(large)
        await peer.until(h2.events.StreamEnded)

    scenario(play)


@pytest.mark.parametrize(
    ("trailers", "expected"),
    [
        ((("grpc-status", "5"), ("grpc-message", "lease%20not found")), (Code.NOT_FOUND, "lease not found")),
        ((("grpc-status", "99"),), (Code.UNKNOWN, "")),
        ((("grpc-status", "x"),), (Code.UNKNOWN, "")),
        ((("grpc-status", "²"),), (Code.UNKNOWN, "")),
        ((("content-language", "en"),), (Code.INTERNAL, "the answer ended without a status")),
    ],
)
def test_what_the_trailers_say(trailers: tuple[tuple[str, str], ...], expected: tuple[Code, str]) -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        await peer.answer(stream.number, b"", trailers=trailers)
        assert await ending(stream) == Status(*expected)

    scenario(play)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (((":status", "200"), ("grpc-status", "16")), Code.UNAUTHENTICATED),
        (((":status", "404"),), Code.UNIMPLEMENTED),
        (((":status", "503"),), Code.UNAVAILABLE),
        (((":status", "418"),), Code.UNKNOWN),
        (((":status", "teapot"),), Code.UNKNOWN),
    ],
)
def test_an_answer_of_headers_only(headers: tuple[tuple[str, str], ...], code: Code) -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        peer.http.send_headers(stream.number, headers, end_stream=True)
        await peer.flush()
        assert (await ending(stream)).code is code

    scenario(play)


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"\1\0\0\0\0", Code.INTERNAL), (struct.pack(">BI", 0, (64 << 20) + 1), Code.RESOURCE_EXHAUSTED)],
    ids=["compressed", "too large"],
)
def test_a_message_that_is_not_taken_ends_the_call(data: bytes, code: Code) -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        await peer.answer(stream.number, data)
        assert (await ending(stream)).code is code
        await peer.until(h2.events.StreamReset)
        assert connection.usable

    scenario(play)


@pytest.mark.parametrize(("error", "unsent"), [(7, True), (8, False), (2, False)])
def test_a_refused_call_has_not_begun_and_a_cancelled_one_may_have(error: int, unsent: bool) -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        await peer.reset(stream.number, error)
        status = await ending(stream)
        assert (status.code, status.unsent) == (Code.UNAVAILABLE, unsent)

    scenario(play)


def test_a_server_that_takes_leave_says_which_calls_it_has_begun() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        first, second = await begun(connection, peer), await begun(connection, peer)
        peer.http.close_connection(last_stream_id=first.number, additional_data=b"bye")
        await peer.flush()
        statuses = [await ending(each) for each in (first, second)]
        assert [status.unsent for status in statuses] == [False, True]
        assert "bye" in statuses[0].details
        assert not connection.usable
        await connection.lost

    scenario(play)


def test_a_goodbye_costs_no_answer_that_came_before_it() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        peer.http.send_headers(stream.number, HEAD)
        peer.http.send_data(stream.number, framed(b"answer"))
        peer.http.send_headers(stream.number, (("grpc-status", "0"),), end_stream=True)
        # As Go's servers take leave: a ping follows at once, which h2 takes for a breach of the protocol.
        peer.http.ping(b"are they")
        last = peer.http.data_to_send()
        peer.http.close_connection(last_stream_id=stream.number)
        ping = last[-17:]
        await asyncio.get_running_loop().sock_sendall(peer.socket, last + peer.http.data_to_send() + ping)
        assert await stream.receive() == b"answer"
        assert await stream.receive() is None
        assert not connection.usable
        await connection.lost

    scenario(play)


def test_a_call_that_the_server_ends_while_we_send_harms_no_other() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        other = await begun(connection, peer)
        stream = connection.open("/x", ())
        stream.send(bytes(1 << 20), last=True)
        await peer.until(h2.events.RequestReceived)
        while peer.http.remote_flow_control_window(stream.number):
            await peer.until(h2.events.DataReceived)
        # All in one piece: there is room again, but the call is over.
        peer.http.increment_flow_control_window(1 << 16)
        peer.http.increment_flow_control_window(1 << 16, stream.number)
        peer.http.send_headers(stream.number, (*HEAD, ("grpc-status", "8")), end_stream=True)
        peer.http.reset_stream(stream.number)
        await peer.flush()
        assert (await ending(stream)).code is Code.RESOURCE_EXHAUSTED
        assert connection.usable
        await peer.answer(other.number, framed(b"fine"), trailers=(("grpc-status", "0"),))
        assert await other.receive() == b"fine"

    scenario(play)


def test_a_lost_connection_ends_its_calls() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        peer.socket.close()
        status = await ending(stream)
        assert (status.code, status.unsent) == (Code.UNAVAILABLE, False)
        with pytest.raises(CallEnded) as caught:
            connection.open("/x", ())
        assert caught.value.status.unsent

    scenario(play)


def test_a_call_that_expires_is_taken_back() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        stream.expire()
        assert (await ending(stream)).code is Code.DEADLINE_EXCEEDED
        assert (await peer.until(h2.events.StreamReset)).stream_id == stream.number
        # What was under way to it meanwhile harms nobody.
        other = await begun(connection, peer)
        await peer.answer(other.number, framed(b"fine"))
        assert await other.receive() == b"fine"

    scenario(play)


def test_a_retired_connection_ends_with_its_last_call() -> None:
    async def play(connection: Connection, peer: Peer) -> None:
        stream = await begun(connection, peer)
        connection.retire()
        assert not connection.usable
        await peer.answer(stream.number, framed(b"late"), trailers=(("grpc-status", "0"),))
        assert await stream.receive() == b"late"
        await peer.until(h2.events.ConnectionTerminated)
        await connection.lost

    scenario(play)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_does_not_speak_http2_is_no_connection(answer: bytes) -> None:
    async def run() -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writer.close()

        server: Any = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(OSError, match=r"HTTP/2|closed|lost"):
                await connect("127.0.0.1", port, tls=None, name=None, authority="x")

    asyncio.run(asyncio.wait_for(run(), 20))
