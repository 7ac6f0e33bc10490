"""A gRPC server that takes watches and never answers them, though it answers pings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import grpc

from elastic.etcd import wire
from elastic.etcd._pb import etcd_pb2 as pb


class MuteServer(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic only in the stubs
    """Listens on `endpoint`; `requests` holds what the watches asked for."""

    def __init__(self) -> None:
        self.requests: list[pb.WatchRequest] = []
        self._over = threading.Event()
        self._workers = ThreadPoolExecutor(4)
        self._server = grpc.server(self._workers, handlers=[self])
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.endpoint = f"127.0.0.1:{port}"
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        if details.method != wire.WATCH.path:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._watch,
            request_deserializer=wire.WATCH.request.FromString,
            response_serializer=wire.WATCH.response.SerializeToString,
        )

    def _watch(self, requests: Iterator[pb.WatchRequest], context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            self.requests.extend(requests)
        except grpc.RpcError:
            # The client has hung up.
            return
        self._over.wait(30)
        yield from ()

    def __enter__(self) -> MuteServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.stop(0).wait(5)
        self._workers.shutdown()
