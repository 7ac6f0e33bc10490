"""The connections to etcd: one gRPC channel per endpoint, and which of them to use next.

The pool sends single calls and opens streams, and learns from how they end. It never retries: that is
`calls`. It never says that no endpoint is left, for the least bad one may be back.

An endpoint that failed is passed over for a while, and a background probe asks it for its status until it
answers. The probe is what makes grpcio reconnect: older versions do network I/O only inside calls, so a
channel that is used by fail-fast calls with pauses in between would never come back. It also proves more
than a connection: a frozen server accepts connections and answers nothing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import grpc

from elastic.etcd import errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.backoff import jitter
from elastic.etcd.tls import Tls
from elastic.etcd.wire import Method, Q, R
from elastic.utils.endpoints import Endpoint

Metadata = tuple[tuple[str, str], ...]

# etcd drops clients that ping more often than every five seconds, or without a stream. A missing answer to
# a ping is noticed by ping_timeout_ms; keepalive_timeout_ms has no effect in the versions measured.
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.ping_timeout_ms", 3000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Clients must not share connections: one's trouble would become the other's.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 << 20),
    # A machine's http_proxy is for the web, not for the cluster's etcd.
    ("grpc.enable_http_proxy", 0),
)

_BACKOFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
_PROBE_SECONDS = 60.0
# A call given less time than this says nothing about the server when the time runs out.
TELLING_SECONDS = 0.5


class Line:
    """The channel to one endpoint, and its health as the pool sees it."""

    __slots__ = ("_stubs", "channel", "endpoint", "failures", "passed_over_until", "probe", "reserve")

    def __init__(self, endpoint: Endpoint, channel: grpc.Channel, *, reserve: bool = False) -> None:
        self.endpoint = endpoint
        self.reserve = reserve
        self.channel = channel
        self.failures = 0
        self.passed_over_until = 0.0
        self.probe: Any = None
        self._stubs: dict[str, Any] = {}

    def unary(self, method: Method[Q, R]) -> Any:
        # Two threads may both make the stub: they are the same, and setting a key is atomic.
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self.channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            self._stubs[method.path] = stub
        return stub


class Pool:
    """Channels to the members of one cluster. Thread-safe; `close` ends every call and stream."""

    def __init__(self, endpoints: Sequence[Endpoint], *, tls: Tls | None) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._tls = tls
        self._lines = [Line(endpoint, _open(endpoint, tls=tls)) for endpoint in endpoints]
        # Clients spread over the members; each stays with the one that works.
        random.shuffle(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def lines(self) -> tuple[Line, ...]:
        """Every line, the one that `pick` prefers first."""
        return tuple(self._lines)

    def open(self, endpoint: Endpoint) -> Line:
        """A line of reserve, which is not in the pool: `adopt` it or close its channel."""
        return Line(endpoint, _open(endpoint, tls=self._tls), reserve=True)

    def adopt(self, line: Line) -> None:
        """Takes a line of reserve in: it is picked while no other line is in good standing."""
        with self._lock:
            wanted = not self._closed and line.endpoint not in {each.endpoint for each in self._lines}
            if wanted:
                self._lines = [*self._lines, line]
        if not wanted:
            line.channel.close()

    def pick(self) -> Line:
        """The line to use now: the first one in good standing, or else the one that is due next."""
        first = self._lines[0]
        if not first.failures:
            return first
        with self._lock:
            now = time.monotonic()
            usable = (line for line in self._lines if line.passed_over_until <= now)
            return next(usable, None) or min(self._lines, key=lambda line: line.passed_over_until)

    def has_usable(self) -> bool:
        """Whether some line is in good standing, so that trying at once makes sense."""
        with self._lock:
            now = time.monotonic()
            return any(line.passed_over_until <= now for line in self._lines)

    def succeeded(self, line: Line) -> None:
        """The line answered."""
        if not line.failures:
            return
        with self._lock:
            self._restore(line)

    def failed(self, line: Line) -> None:
        """The line did not answer: pass it over for a while, longer each time, and probe it."""
        with self._lock:
            if self._closed or line not in self._lines:
                return
            step = min(line.failures, len(_BACKOFF_SECONDS) - 1)
            line.failures += 1
            line.passed_over_until = time.monotonic() + _BACKOFF_SECONDS[step] * jitter(0.8, 1.2)
            # A new list, for `pick` looks at its head without the lock. Those of reserve stay behind.
            rest = [other for other in self._lines if other is not line]
            self._lines = sorted([*rest, line], key=lambda each: each.reserve)
            if line.probe is not None:
                return
            probe = line.unary(wire.STATUS).future(
                pb.StatusRequest(), timeout=_PROBE_SECONDS, wait_for_ready=True
            )
            line.probe = probe
        # Outside the lock: a probe that has ended already calls back at once, in this thread.
        probe.add_done_callback(lambda done: self._probed(line, done))

    def _probed(self, line: Line, done: Any) -> None:
        answered = done.code() is grpc.StatusCode.OK
        # A member without a leader answers this, and nothing else.
        useful = answered and cast(pb.StatusResponse, done.result()).leader != 0
        with self._lock:
            line.probe = None
            if useful and not self._closed:
                self._restore(line)

    def _restore(self, line: Line) -> None:
        line.failures = 0
        line.passed_over_until = 0.0

    def call(self, line: Line, method: Method[Q, R], request: Q, *, timeout: float, metadata: Metadata) -> R:
        """One attempt on one line. Raises EtcdError; a line that did not answer is passed over next time."""
        try:
            response = line.unary(method)(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            raise self.learn(line, error, timeout=timeout) from error
        except ValueError as error:
            raise self._refused(error) from error
        if line.failures:
            self.succeeded(line)
        return cast(R, response)

    def stream(
        self, line: Line, method: Method[Q, R], requests: Iterator[Q], *, metadata: Metadata
    ) -> grpc.CallIterator[R]:
        """Opens a stream. Reading it raises grpc.RpcError: hand that to `learn`."""
        stub = line.channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=cast(Callable[[bytes], R], method.response.FromString),
        )
        try:
            return stub(requests, metadata=metadata)
        except ValueError as error:
            raise self._refused(error) from error

    def learn(self, line: Line, error: grpc.RpcError, *, timeout: float | None = None) -> errors.EtcdError:
        """Our error for gRPC's; notes what it says of the line. `timeout` is what the call was given."""
        if self._closed:
            return errors.ClientClosed("the etcd client was closed during the call", applied="maybe")
        status = cast(grpc.Call, error)
        found = errors.from_status(status.code(), status.details() or "", endpoint=str(line.endpoint))
        hasty = (
            isinstance(found, errors.DeadlineExceeded) and timeout is not None and timeout < TELLING_SECONDS
        )
        if isinstance(found, errors.Unavailable) and not hasty:
            self.failed(line)
        return found

    def _refused(self, error: ValueError) -> BaseException:
        """gRPC refuses calls on a closed channel with a ValueError; any other one is a fault of ours."""
        return errors.ClientClosed("the etcd client is closed") if self._closed else error

    def close(self) -> None:
        """Ends everything that runs on the channels. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for line in self._lines:
            line.channel.close()


def _open(endpoint: Endpoint, *, tls: Tls | None) -> grpc.Channel:
    options: list[tuple[str, Any]] = list(_OPTIONS)
    # A target is a URI, in which the '%' of a scope id is written %25.
    resolver = "ipv6:" if ":" in endpoint.host else "dns:///"
    target = resolver + str(endpoint).replace("%", "%25")
    if tls is None and not endpoint.secure:
        return grpc.insecure_channel(target, options=options)
    tls = tls or Tls()
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.secure_channel(target, tls.credentials(), options=options)
