"""A store in the memory of one process, reached over TCP: no other service is needed.

The one with `is_master` runs the server (:mod:`elastic.store.server`); when that process ends, the values
are gone. A store that must outlive its nodes is one on etcd.
"""

from __future__ import annotations

import contextlib
import operator
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from elastic.utils import backoff
from elastic.utils.endpoints import host_and_port

from . import handshake
from .api import Store, StoreDeniedError, StoreError, StoreTimeoutError, not_set
from .connection import Broken, TooLarge
from .durations import DEFAULT_TIMEOUT, Duration, seconds
from .limits import Limits
from .messages import WRITES, Answer, Op, Outcome, Request
from .pool import Pool
from .semantics import encoded, paired, several
from .server import TCPStoreServer

_FIRST_PAUSE = 0.01
_CONNECT = 10.0  # seconds that one try to connect may take
_GRACE = (1.0, 5.0)  # seconds for the way to the server and back, besides the waiting there: least and most


class TCPStore(Store):
    """A client of the server at `host_name`:`port`, and with `is_master` that server too.

    The master listens on the address of `host_name` alone, or on `listen_on` where that is another one (a
    name that others translate, say); its port 0 is any free one, which `port` tells. With a `world_size` and
    `wait_for_workers` the master's constructor returns once so many clients, itself included, have connected.
    A client waits for the server to be there. All of this within `timeout`, which is also the store's default
    timeout, and how long a call reconnects after its connection broke; a blocking call does so for its own
    timeout and one to five seconds more, so that its answer can arrive.

    `secret`, or the content of `secret_file`, must be the same everywhere. It keeps strangers out, and does
    not encrypt. A server that says nothing for three `heartbeat` seconds counts as lost. `linger` is how long
    the master's `close` serves on for those who have not closed theirs, and `limits` is what it takes from
    clients.

    A write whose connection breaks is sent again, and done once. A StoreError names host, port and reason;
    it is a StoreDeniedError where the secret is wrong.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: Duration = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        *,
        secret: str | bytes | None = None,
        secret_file: str | Path | None = None,
        listen_on: str | None = None,
        linger: Duration = 5.0,
        heartbeat: Duration = 5.0,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(timeout=timeout)
        least = 0 if is_master else 1
        if not least <= port <= 65535:
            raise ValueError(f"port {port} is none: expected {least} to 65535")
        if not is_master and listen_on is not None:
            raise ValueError(f"listen_on={listen_on!r} is for the master, and this store is not the master")
        if not seconds(heartbeat):
            raise ValueError(
                "heartbeat is 0: give the seconds of silence after which to ask for a sign of life"
            )
        known = handshake.secret_of(secret, secret_file)
        self._linger = seconds(linger)
        self._heartbeat = seconds(heartbeat)
        self._instance = b""
        self._writes = 0
        self._pending: set[int] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._server: TCPStoreServer | None = None
        self._host, self._port = host_name, port
        if is_master:
            self._server = TCPStoreServer(listen_on or host_name, port, secret=known or None, limits=limits)
            self._port = self._server.port
        own = host_name if self._server is None else self._server.host
        self._pool = Pool(own, self._port, secret=known)
        try:
            self._ask(Op.PING)
            if self._server is not None and world_size and world_size > 0 and wait_for_workers:
                self._wait_for_workers(self._server, world_size)
        except BaseException:
            self._linger = 0.0
            self.close()
            raise

    @property
    def host(self) -> str:
        """The host, as it was given."""
        return self._host

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._port

    @property
    def instance(self) -> str:
        return self._instance.hex()

    @property
    def is_master(self) -> bool:
        """Whether the server is of this store."""
        return self._server is not None

    # -- reading ----------------------------------------------------------------------------------------

    def peek(self, key: str) -> bytes | None:
        fields = self._ask(Op.PEEK, key.encode()).fields
        return fields[0] if fields else None

    def get(self, key: str, timeout: Duration | None = None) -> bytes:
        return self._ask_for([key], Op.GET, timeout)[0]

    def multi_get(self, keys: Sequence[str], timeout: Duration | None = None) -> list[bytes]:
        return self._ask_for(keys, Op.GET, timeout)

    def wait(self, keys: Sequence[str], timeout: Duration | None = None) -> None:
        self._ask_for(keys, Op.WAIT, timeout)

    def wait_change(self, key: str, known: bytes | None, timeout: Duration | None = None) -> bool:
        fields = (key.encode(),) if known is None else (key.encode(), known)
        answer = self._ask(Op.WAIT_CHANGE, *fields, wait=self._limit(timeout))
        return answer.outcome is Outcome.DONE

    def check(self, keys: Sequence[str]) -> bool:
        return self._ask(Op.CHECK, *(key.encode() for key in several(keys))).fields[0] != b""

    def list_keys(self) -> list[str]:
        return [key.decode() for key in self._ask(Op.LIST).fields]

    def num_keys(self) -> int:
        return int(self._ask(Op.COUNT).fields[0])

    # -- writing ----------------------------------------------------------------------------------------

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(Op.SET, key.encode(), encoded(value))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        pairs = paired(keys, values)
        if pairs:
            self._ask(Op.SET, *(part for key, value in pairs for part in (key.encode(), encoded(value))))

    def append(self, key: str, value: str | bytes) -> None:
        self._ask(Op.APPEND, key.encode(), encoded(value))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(Op.ADD, key.encode(), str(operator.index(amount)).encode()).fields[0])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._ask(Op.COMPARE_SET, key.encode(), encoded(expected), encoded(desired)).fields[0]

    def delete_key(self, key: str) -> bool:
        return bool(self._ask(Op.DELETE, key.encode()).fields)

    def close(self) -> None:
        """Disconnect. The master's serves the others on, until they have closed or its linger is over."""
        self._closed.set()
        self._pool.close()
        if self._server is not None:
            self._server.close(linger=self._linger)

    # -- asking -----------------------------------------------------------------------------------------

    def _ask_for(self, keys: Sequence[str], op: Op, timeout: Duration | None) -> list[bytes]:
        if not several(keys):
            return []
        limit = self._limit(timeout)
        answer = self._ask(op, *(key.encode() for key in keys), wait=limit)
        if answer.outcome is Outcome.TIMED_OUT:
            raise not_set([key for key in keys if key.encode() in answer.fields], limit)
        return list(answer.fields)

    def _ask(self, op: Op, *fields: bytes, wait: float | None = None) -> Answer:
        """The answer, whatever breaks meanwhile; `wait` is how long the server may hold it back.

        StoreError where the request fails, or the server cannot be reached.
        """
        begun = time.monotonic()
        limit = self._limit(None)
        if wait is not None:
            limit = wait + max(_GRACE[0], min(_GRACE[1], limit))
        with self._write_number(op) as write:
            failures = 0
            while True:
                held = 0.0 if wait is None else max(0.0, begun + wait - time.monotonic())
                try:
                    answer = self._once(op, fields, held, write, deadline=begun + limit)
                except TooLarge as e:
                    raise StoreError(str(e)) from None
                except handshake.Unproven as e:
                    raise StoreDeniedError(f"the store at {self._where}: {e}; give both the same") from e
                except Broken as e:
                    failures += 1
                    pause = backoff.pause(failures, first=_FIRST_PAUSE)
                    if self._closed.is_set():
                        raise StoreError(f"the store at {self._where} is closed") from e
                    if time.monotonic() + pause >= begun + limit:
                        raise StoreError(
                            f"the store at {self._where} cannot be reached: {e} (tried for {limit:g} s)"
                        ) from e
                    self._closed.wait(pause)
                else:
                    if answer.outcome is Outcome.FAILED:
                        raise StoreError(answer.fields[0].decode(errors="replace"))
                    return answer

    def _once(self, op: Op, fields: tuple[bytes, ...], held: float, write: int, *, deadline: float) -> Answer:
        left = max(0.1, deadline - time.monotonic())
        with self._pool.connection(timeout=min(left, _CONNECT)) as connection:
            request = Request(
                connection.next_number(),
                op,
                fields,
                wait=round(held * 1000),
                write=write,
                floor=self._floor() if write else 0,
            )
            answer = connection.ask(request, deadline=deadline, heartbeat=self._heartbeat)
            self._instance = connection.instance
            return answer

    @contextlib.contextmanager
    def _write_number(self, op: Op) -> Iterator[int]:
        """The number that a write keeps until its answer is there; 0 for what changes nothing."""
        if op not in WRITES:
            yield 0
            return
        with self._lock:
            self._writes += 1
            write = self._writes
            self._pending.add(write)
        try:
            yield write
        finally:
            with self._lock:
                self._pending.discard(write)

    def _floor(self) -> int:
        with self._lock:
            return min(self._pending)

    def _wait_for_workers(self, server: TCPStoreServer, count: int) -> None:
        limit = self._limit(None)
        seen = server.wait_for_clients(count, limit)
        if seen < count:
            raise StoreTimeoutError(
                f"{seen} of {count} workers have connected to {self._where} within {limit:g} s"
            )

    @property
    def _where(self) -> str:
        return host_and_port(self._host, self._port)
