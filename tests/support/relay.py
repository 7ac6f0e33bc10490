"""A TCP relay between a client and a server, which can break the connection in every way a network can."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from types import TracebackType

_CHUNK = 65536


class _Pair:
    """One relayed connection; bytes wait in the buffers while a direction is blocked or slow."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.buffers: dict[socket.socket, bytearray] = {client: bytearray(), server: bytearray()}

    def peer(self, end: socket.socket) -> socket.socket:
        return self.server if end is self.client else self.client


class Relay:
    """Listens on a port of its own and relays to `target`; one thread does everything.

    Commands take effect before they return. `cut` resets the connections there are; `refuse` also lets
    nobody connect any more; `pause` keeps connections open and lets nothing through; `deafen` lets requests
    through and holds the answers back; `heal` ends all of these.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._selector = selectors.DefaultSelector()
        self._pairs: list[_Pair] = []
        self._paused = False
        self._deaf = False
        self._running = True
        self._listener: socket.socket | None = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._commands: list[tuple[Callable[[], None], threading.Event]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        self._do(self._cut)

    def refuse(self) -> None:
        self._do(self._refuse)

    def pause(self) -> None:
        self._do(lambda: self._hold(paused=True, deaf=False))

    def deafen(self) -> None:
        self._do(lambda: self._hold(paused=False, deaf=True))

    def heal(self) -> None:
        self._do(self._heal)

    def close(self) -> None:
        if self._running:
            try:
                self._do(self._end)
            finally:
                self._thread.join(5)
                self._wake.close()
                self._woken.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What follows runs in the relay's thread.

    def _do(self, command: Callable[[], None]) -> None:
        done = threading.Event()
        with self._lock:
            self._commands.append((command, done))
        self._wake.send(b"x")
        assert done.wait(5), "the relay does not react"

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        return listener

    def _run(self) -> None:
        while self._running:
            for key, mask in self._selector.select():
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if end is self._woken:
                    end.recv(_CHUNK)
                elif end is self._listener:
                    self._accept(end)
                elif key.data in self._pairs:
                    self._serve(key.data, end, mask)
            with self._lock:
                commands, self._commands = self._commands, []
            for command, done in commands:
                command()
                done.set()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            # Whoever connected has given up already.
            return
        try:
            server = socket.create_connection(self._target, timeout=2)
        except OSError:
            client.close()
            return
        pair = _Pair(client, server)
        self._pairs.append(pair)
        for end in (client, server):
            end.setblocking(False)
            self._selector.register(end, self._interest(pair, end), pair)

    def _blocked(self, pair: _Pair, end: socket.socket) -> bool:
        """Whether what `end` says goes no further now."""
        return self._paused or (self._deaf and end is pair.server)

    def _interest(self, pair: _Pair, end: socket.socket) -> int:
        # Reading goes on while blocked, so that a closed connection is still seen.
        writable = pair.buffers[pair.peer(end)] and not self._blocked(pair, pair.peer(end))
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)

    def _serve(self, pair: _Pair, end: socket.socket, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                data = end.recv(_CHUNK)
                if not data:
                    self._drop(pair)
                    return
                pair.buffers[end] += data
        except OSError:
            self._drop(pair)
            return
        self._flush_both(pair)

    def _flush_both(self, pair: _Pair) -> None:
        try:
            for source in (pair.client, pair.server):
                self._flush(pair, source)
        except OSError:
            self._drop(pair)

    def _flush(self, pair: _Pair, source: socket.socket) -> None:
        buffer = pair.buffers[source]
        if buffer and not self._blocked(pair, source):
            with contextlib.suppress(BlockingIOError):
                del buffer[: pair.peer(source).send(buffer)]
        self._selector.modify(pair.peer(source), self._interest(pair, pair.peer(source)), pair)

    def _drop(self, pair: _Pair) -> None:
        self._pairs.remove(pair)
        for end in (pair.client, pair.server):
            self._selector.unregister(end)
            end.close()

    def _cut(self) -> None:
        for pair in list(self._pairs):
            # A linger of zero makes the close a reset: nothing that was under way arrives.
            for end in (pair.client, pair.server):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self._drop(pair)

    def _refuse(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        self._cut()

    def _hold(self, *, paused: bool, deaf: bool) -> None:
        self._paused, self._deaf = paused, deaf
        for pair in list(self._pairs):
            self._flush_both(pair)

    def _heal(self) -> None:
        if self._listener is None:
            self._listener = self._listen(self.port)
        self._hold(paused=False, deaf=False)

    def _end(self) -> None:
        self._refuse()
        self._running = False
        self._selector.close()
