"""The connections to etcd: at most one to each endpoint, and which of them to use next.

The pool sends single calls and opens streams, and learns from how they end. It never retries: that is
`calls`. It never says that no endpoint is left, for the least bad one may be back. All of it runs in the
client's loop, so nothing here needs a lock; only `lines` may be read from elsewhere.

An endpoint that failed is passed over for a while, and a probe asks it for its status until it answers. That
proves more than a connection: a frozen server accepts connections and answers nothing.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from elastic.etcd import dial, errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.http2 import Connection, explain
from elastic.etcd.rpc import CallEnded, Metadata, Status, Stream
from elastic.etcd.tls import Tls
from elastic.etcd.wire import Method, Q, R
from elastic.utils.backoff import jitter
from elastic.utils.endpoints import Endpoint

_BACKOFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
_PROBE_SECONDS = 60.0
_PROBE_PAUSES = (0.2, 2.0)
# An attempt to connect is begun anew after so long: the system's own repetitions grow ever rarer.
_CONNECT_SECONDS = 3.0
_CLOSE_SECONDS = 1.0
# A call given less time than this says nothing about the server when the time runs out.
TELLING_SECONDS = 0.5


class Line:
    """The way to one endpoint: its connection, made when needed, and its health as the pool sees it."""

    __slots__ = (
        "_connecting",
        "_connection",
        "_tls",
        "_tls_name",
        "endpoint",
        "failures",
        "passed_over_until",
        "probe",
        "reserve",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        tls: ssl.SSLContext | None,
        tls_name: str | None = None,
        reserve: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.reserve = reserve
        self.failures = 0
        self.passed_over_until = 0.0
        self.probe: asyncio.Task[None] | None = None
        self._tls = tls
        self._tls_name = tls_name
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None

    async def connected(self, *, timeout: float) -> Connection:
        """A connection on which a call can begin. Raises CallEnded if there is none in so many seconds.

        An attempt to connect that takes longer goes on for whoever comes next.
        """
        if self._connection is not None and self._connection.usable:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(_expect_trouble)
        connecting = self._connecting
        await asyncio.wait({connecting}, timeout=timeout)
        if not connecting.done():
            status = Status(errors.Code.DEADLINE_EXCEEDED, "no connection in time", unsent=True)
            raise CallEnded(status)
        try:
            return connecting.result()
        except OSError as error:
            reason = f"cannot connect: {explain(error)}"
            raise CallEnded(Status(errors.Code.UNAVAILABLE, reason, unsent=True)) from error

    async def _connect(self) -> Connection:
        host, port = self.endpoint.host, self.endpoint.port
        # A zone is this machine's word for one of its networks: it means nothing to the server.
        authority = self._tls_name or str(Endpoint("etcd", host.partition("%")[0], port))
        try:
            self._connection = await asyncio.wait_for(
                dial.connect(host, port, tls=self._tls, name=self._tls_name, authority=authority),
                _CONNECT_SECONDS,
            )
            return self._connection
        except asyncio.TimeoutError as error:
            raise ConnectionError("it does not answer") from error
        finally:
            self._connecting = None

    def mistrust(self, *, since: float) -> None:
        """A call got no answer: if nothing was heard at all since it began, the next one connects anew."""
        if self._connection is not None and self._connection.heard < since:
            self._connection.retire()

    async def close(self) -> None:
        """Ends the connection and everything on it."""
        tasks = [task for task in (self._connecting, self.probe) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        if self._connection is not None:
            self._connection.close()
            await asyncio.wait({self._connection.lost}, timeout=_CLOSE_SECONDS)


def _expect_trouble(connecting: asyncio.Task[Connection]) -> None:
    """Whoever waited for the connection may be gone: that it failed is then nobody's news."""
    if not connecting.cancelled():
        connecting.exception()


class Pool:
    """The lines to the members of one cluster."""

    def __init__(self, endpoints: Sequence[Endpoint], *, tls: Tls | None) -> None:
        if tls is None and endpoints[0].secure:
            tls = Tls()
        self._context = tls.context(protocols=("h2",)) if tls is not None else None
        self._tls_name = tls.server_name if tls is not None else None
        self._lines = [self.open(endpoint, reserve=False) for endpoint in endpoints]
        # Clients spread over the members; each stays with the one that works.
        random.shuffle(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def lines(self) -> tuple[Line, ...]:
        """Every line, the one that `pick` prefers first. From any thread."""
        return tuple(self._lines)

    def open(self, endpoint: Endpoint, *, reserve: bool = True) -> Line:
        """A line that is not in the pool: `adopt` it or close it."""
        return Line(endpoint, tls=self._context, tls_name=self._tls_name, reserve=reserve)

    async def adopt(self, line: Line) -> None:
        """Takes a line of reserve in: it is picked while no other line is in good standing."""
        if line.endpoint in {each.endpoint for each in self._lines}:
            await line.close()
        else:
            self._lines = [*self._lines, line]

    def pick(self) -> Line:
        """The line to use now: the first one in good standing, or else the one that is due next."""
        now = time.monotonic()
        usable = (line for line in self._lines if line.passed_over_until <= now)
        return next(usable, None) or min(self._lines, key=lambda line: line.passed_over_until)

    def has_usable(self) -> bool:
        """Whether some line is in good standing, so that trying at once makes sense."""
        now = time.monotonic()
        return any(line.passed_over_until <= now for line in self._lines)

    def succeeded(self, line: Line) -> None:
        """The line answered."""
        line.failures = 0
        line.passed_over_until = 0.0

    def failed(self, line: Line) -> None:
        """The line did not answer: pass it over for a while, longer each time, and probe it."""
        if line not in self._lines:
            return
        step = min(line.failures, len(_BACKOFF_SECONDS) - 1)
        line.failures += 1
        line.passed_over_until = time.monotonic() + _BACKOFF_SECONDS[step] * jitter(0.8, 1.2)
        # A new list, for `lines` is read by other threads. Those of reserve stay behind.
        rest = [other for other in self._lines if other is not line]
        self._lines = sorted([*rest, line], key=lambda each: each.reserve)
        if line.probe is None:
            line.probe = asyncio.get_running_loop().create_task(self._probe(line))

    async def _probe(self, line: Line) -> None:
        deadline = time.monotonic() + _PROBE_SECONDS
        pause, longest = _PROBE_PAUSES
        try:
            while (left := deadline - time.monotonic()) > 0:
                try:
                    status = await self._attempt(line, wire.STATUS, pb.StatusRequest(), timeout=left)
                except CallEnded:
                    await asyncio.sleep(jitter(pause / 2, pause))
                    pause = min(2 * pause, longest)
                    continue
                # A member without a leader answers this, and nothing else.
                if status.leader != 0:
                    self.succeeded(line)
                return
        finally:
            line.probe = None

    async def call(
        self, line: Line, method: Method[Q, R], request: Q, *, timeout: float, metadata: Metadata = ()
    ) -> R:
        """One attempt on one line. Raises EtcdError; a line that did not answer is passed over next time."""
        began = time.monotonic()
        try:
            response = await self._attempt(line, method, request, timeout=timeout, metadata=metadata)
        except CallEnded as ended:
            error = self.learn(line, ended.status, timeout=timeout)
            if isinstance(error, errors.DeadlineExceeded) and timeout >= TELLING_SECONDS:
                line.mistrust(since=began)
            raise error from ended
        if line.failures:
            self.succeeded(line)
        return response

    async def _attempt(
        self, line: Line, method: Method[Q, R], request: Q, *, timeout: float, metadata: Metadata = ()
    ) -> R:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await line.connected(timeout=timeout)
        stream = connection.open(method.path, metadata, timeout=deadline - loop.time())
        timer = loop.call_at(deadline, stream.expire)
        try:
            stream.send(request.SerializeToString(), last=True)
            message = await stream.receive()
            # The one message is the answer only once the call is known to have ended well.
            if message is None or await stream.receive() is not None:
                raise CallEnded(Status(errors.Code.INTERNAL, "expected one answer"))
            return method.response.FromString(message)
        except DecodeError as error:
            raise CallEnded(Status(errors.Code.INTERNAL, f"the answer is garbled: {error}")) from error
        finally:
            timer.cancel()
            stream.cancel()

    async def stream(self, line: Line, method: Method[Q, R], *, timeout: float, metadata: Metadata) -> Stream:
        """Opens a stream; connecting takes at most `timeout` seconds. Raises EtcdError.

        Reading it raises CallEnded: hand its status to `learn`.
        """
        try:
            connection = await line.connected(timeout=timeout)
            return connection.open(method.path, metadata)
        except CallEnded as ended:
            raise self.learn(line, ended.status, timeout=timeout) from ended

    def learn(self, line: Line, status: Status, *, timeout: float | None = None) -> errors.EtcdError:
        """Our error for a status; notes what it says of the line. `timeout` is what the call was given."""
        found = errors.from_status(
            status.code, status.details, endpoint=str(line.endpoint), unsent=status.unsent
        )
        hasty = (
            isinstance(found, errors.DeadlineExceeded) and timeout is not None and timeout < TELLING_SECONDS
        )
        if isinstance(found, errors.Unavailable) and not hasty:
            self.failed(line)
        return found

    async def close(self) -> None:
        """Ends everything that runs on the lines."""
        for line in self._lines:
            await line.close()
