"""The server of a TCPStore: one thread, one port, and nothing on disk.

It reads requests off its connections, asks the `Board`, and writes answers. A client that sends garbage, is
too slow or does not know the secret loses its connection, and nobody else notices. The values live as long
as the server does.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from . import handshake, sockets
from .api import StoreError
from .board import Board
from .limits import Limits
from .messages import Garbled, answer_frame, read_request
from .peer import Peer

log = logging.getLogger(__name__)

_TICK = 0.5  # how often unfinished messages are looked at
_LONGEST_SLEEP = 3600.0
_COMPLAIN = 60.0  # seconds between two warnings of the same
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class TCPStoreServer:
    """Serves from construction until `close`, which its owner calls.

    Listens on the one address that `host` is, and where given on that of `also_on`, and no other interface;
    port 0 is any free one, and `port` tells which. With a `secret` (or a `secret_file`, which holds one),
    clients must know it. StoreError where an address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int = 0,
        *,
        also_on: str | None = None,
        secret: str | bytes | None = None,
        secret_file: str | Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._secret = handshake.secret_of(secret, secret_file)
        self._limits = limits or Limits()
        try:
            self._listeners = sockets.listen_on_all([host] if also_on is None else [host, also_on], port)
        except OSError as e:
            raise StoreError(str(e)) from e
        self._address = self._listeners[0].getsockname()
        self._instance = handshake.new_id()
        self._board = Board(self._limits)
        self._peers: dict[int, Peer] = {}
        self._strangers: dict[int, Peer] = {}  # in the order of their coming
        self._hurried: dict[int, Peer] = {}  # those that have a deadline
        self._next_id = 0
        self._accept_from = 0.0
        self._silent_until = 0.0
        self._seen: set[bytes] = set()
        self._changed = threading.Condition()
        self._closing: float | None = None
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listen_again()
        self._thread = threading.Thread(target=self._run, name="tcp-store-server", daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        """The address that it listens on."""
        return str(self._address[0])

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._address[1])

    @property
    def instance(self) -> str:
        """The id of these data; no other server ever has it."""
        return self._instance.hex()

    @property
    def connections(self) -> int:
        """How many connections of clients there are, strangers not counted."""
        return len(self._peers) - len(self._strangers)

    def wait_for_clients(self, count: int, timeout: float) -> int:
        """Wait until so many clients have been here, at most `timeout` seconds; how many have been."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._seen) >= count or not self._thread.is_alive(), timeout)
            return len(self._seen)

    def wait_for_goodbyes(self, timeout: float) -> int:
        """Wait until all clients have disconnected, at most `timeout` seconds; how many have not."""
        with self._changed:
            self._changed.wait_for(lambda: not self.connections or not self._thread.is_alive(), timeout)
            return self.connections

    def close(self, *, linger: float = 0.0) -> None:
        """Stop. Serves on until all clients have disconnected, but for at most `linger` seconds.

        Connections that are left then are cut, and blocked waits fail. May be called again.
        """
        with self._changed:
            self._closing = time.monotonic() + linger
        with contextlib.suppress(OSError):  # it has ended already
            self._wake.send(b"x")
        # The thread ends by itself, soon after the linger: nothing it does blocks.
        self._thread.join()
        self._wake.close()

    def __enter__(self) -> TCPStoreServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what follows runs in the server's thread -------------------------------------------------------

    def _run(self) -> None:
        try:
            looked = 0.0
            while not self._is_over():
                for key, mask in self._selector.select(self._pause()):
                    self._on_event(key.fileobj, key.data, mask)
                now = time.monotonic()
                self._deliver(now)
                if now - looked >= _TICK:
                    looked = now
                    self._cut_the_slow(now)
                    self._accept_again(now)
        finally:
            for peer in tuple(self._peers.values()):
                self._drop(peer, "the server ends")
            self._selector.close()
            for listener in self._listeners:
                listener.close()
            self._woken.close()
            with self._changed:
                self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._closing is not None and (not self.connections or time.monotonic() >= self._closing)

    def _pause(self) -> float | None:
        """How long nothing needs to be done unless something arrives."""
        now = time.monotonic()
        times = [t - now for t in (self._board.next_deadline(), self._closing) if t is not None]
        if self._accept_from or self._hurried:
            times.append(_TICK)
        # A client may ask for a wait that is longer than the system can sleep.
        return max(0.0, min(*times, _LONGEST_SLEEP)) if times else None

    def _on_event(self, end: object, peer: Peer | None, mask: int) -> None:
        if end is self._woken:
            self._woken.recv(64)
        elif isinstance(end, socket.socket) and end in self._listeners:
            self._accept(end)
        elif peer is not None and peer.id in self._peers:
            self._guarded(peer, partial(self._on_peer, peer, mask))

    def _guarded(self, peer: Peer, step: Callable[[], None]) -> None:
        """Does something for one connection; what it did wrong costs it that connection, and no other."""
        try:
            step()
        except (Garbled, handshake.Unproven) as e:
            if not peer.client:
                peer.farewell(handshake.refusal(str(e)))
            self._drop(peer, str(e))
        except OSError as e:
            self._drop(peer, str(e))

    def _on_peer(self, peer: Peer, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            peer.flush()
        if mask & selectors.EVENT_READ and not peer.receive():
            self._drop(peer, "it has disconnected")
            return
        self._advance(peer)

    def _advance(self, peer: Peer) -> None:
        """Handles what has arrived, one request after the other, as long as the answers are taken."""
        now = time.monotonic()
        while not peer.outgoing and (body := peer.take_frame(self._limits.frame)) is not None:
            if not peer.client:
                self._greet(peer, body)
                continue
            answer = self._board.handle(peer.id, peer.client, read_request(body), now=now)
            if answer is not None:
                peer.send(answer_frame(answer))
        stall = self._limits.stall if peer.client else None
        peer.mark_progress(now, stall=stall)
        if peer.deadline is None:
            self._hurried.pop(peer.id, None)
        else:
            self._hurried[peer.id] = peer
        if peer.watched != peer.interest():
            peer.watched = peer.interest()
            self._selector.modify(peer.socket, peer.watched, peer)

    def _deliver(self, now: float) -> None:
        # To hand over an answer may let the connection's next request in, which may answer others.
        while due := self._board.take_due(now=now):
            for who, answer in due:
                peer = self._peers.get(who)
                if peer is not None:
                    self._guarded(peer, partial(self._hand_over, peer, answer_frame(answer)))

    def _hand_over(self, peer: Peer, frame: bytes) -> None:
        peer.send(frame)
        self._advance(peer)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
        except OSError as e:
            if e.errno in _NO_ROOM:
                # It would be offered again at once: wait until there is room.
                self._complain(e)
                self._cut_oldest_stranger("there is no room for more connections")
                for deaf in self._listeners if not self._accept_from else ():
                    self._selector.unregister(deaf)
                self._accept_from = time.monotonic() + _TICK
            return
        self._next_id += 1
        hello = handshake.Hello(self._instance, handshake.new_challenge(), self._limits.frame)
        peer = Peer(self._next_id, connected, hello, deadline=time.monotonic() + self._limits.handshake)
        if len(self._strangers) >= self._limits.strangers:
            self._cut_oldest_stranger("too many others connect")
        self._peers[peer.id] = self._strangers[peer.id] = self._hurried[peer.id] = peer
        self._selector.register(connected, selectors.EVENT_READ, peer)
        self._guarded(peer, partial(self._say_hello, peer))

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + _COMPLAIN
            log.warning("the store on port %d cannot take one more connection: %s", self.port, error.strerror)

    def _say_hello(self, peer: Peer) -> None:
        sockets.keep_alive(peer.socket)
        peer.send_body(peer.hello.body())

    def _accept_again(self, now: float) -> None:
        if self._accept_from and now >= self._accept_from:
            self._accept_from = 0.0
            self._listen_again()

    def _listen_again(self) -> None:
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ)

    def _greet(self, peer: Peer, body: bytes) -> None:
        claim = handshake.read_claim(body, self._secret, peer.hello)
        if self.connections >= self._limits.connections:
            raise Garbled(f"the store has {self.connections} connections, and takes no more")
        peer.client = claim.client
        del self._strangers[peer.id]
        peer.send_body(handshake.welcome(self._secret, peer.hello, claim))
        with self._changed:
            if len(self._seen) < self._limits.connections:
                self._seen.add(claim.client)
            self._changed.notify_all()

    def _cut_the_slow(self, now: float) -> None:
        for peer in tuple(self._hurried.values()):
            if peer.deadline is not None and peer.deadline <= now:
                self._drop(peer, "it is too slow")

    def _cut_oldest_stranger(self, reason: str) -> None:
        if self._strangers:
            self._drop(next(iter(self._strangers.values())), reason)

    def _drop(self, peer: Peer, reason: str) -> None:
        if self._peers.pop(peer.id, None) is None:
            return
        self._strangers.pop(peer.id, None)
        self._hurried.pop(peer.id, None)
        self._board.forget(peer.id)
        self._selector.unregister(peer.socket)
        peer.socket.close()
        with self._changed:
            self._changed.notify_all()
        log.debug("a connection to the store on port %d is closed: %s", self.port, reason)
