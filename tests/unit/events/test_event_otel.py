"""Events as OpenTelemetry log records: by the SDK's own exporter, and over HTTP to a collector."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from elastic import events
from elastic.events import Event, EventSource, NodeState, RdzvEvent
from elastic.events.otel import OtelEventHandler


def test_an_event_is_a_log_record_with_its_fields_as_attributes() -> None:
    exporter: Any = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    handler = OtelEventHandler(provider, owned=True)
    event = Event("elastic.node.lost", EventSource.AGENT, 1234, {"run_id": "r", "round": 3, "cause": None})
    rdzv = RdzvEvent("n", "r", "m", "h", 5, NodeState.FAILED)
    handler.record(event)
    handler.record(rdzv)
    first, second = (data.log_record for data in exporter.get_finished_logs())
    assert first.event_name == "elastic.node.lost"
    assert first.timestamp == 1234 * 1_000_000
    assert first.body == event.serialize()
    assert dict(first.attributes or {}) == {"source": "AGENT", "run_id": "r", "round": 3}
    assert (second.event_name, second.body) == ("n", rdzv.serialize())
    assert dict(second.attributes or {})["node_state"] == "FAILED"
    handler.close()


class Collector(http.server.BaseHTTPRequestHandler):
    received: list[bytes]

    def do_POST(self) -> None:
        self.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def collector() -> Iterator[http.server.HTTPServer]:
    Collector.received = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_events_reach_a_collector(collector: http.server.HTTPServer) -> None:
    url = f"otel:http://127.0.0.1:{collector.server_port}/v1/logs"
    for name in ("one", "two"):
        events.record(Event(name, EventSource.AGENT), url)
    events.close(60)
    requests = [ExportLogsServiceRequest.FromString(data) for data in Collector.received]
    scopes = [scope for r in requests for resource in r.resource_logs for scope in resource.scope_logs]
    assert {scope.scope.name for scope in scopes} == {"elastic.events"}
    assert [record.event_name for scope in scopes for record in scope.log_records] == ["one", "two"]
