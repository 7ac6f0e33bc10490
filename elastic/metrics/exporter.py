"""The metrics endpoint: serves an agent's metrics to Prometheus, over HTTP, on a loopback port.

Off unless somebody makes one. It has a registry of its own, renders at scrape time, and owns one thread, that
`stop` joins, besides one for each request being answered. It needs prometheus_client, loaded when it starts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import elastic
from elastic.metrics.families import job_families, value_families, with_labels
from elastic.metrics.handlers import PUBLISHED, PrometheusMetricHandler
from elastic.metrics.job import JobMetrics
from elastic.utils.endpoints import host_and_port

if TYPE_CHECKING:
    from socketserver import BaseRequestHandler
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric

PATH = "/metrics"
REQUEST_TIMEOUT = 10.0
"""Seconds after which a client that says nothing is left."""


class ExporterError(Exception):
    """The metrics endpoint can't be started; its text says why and what to do."""


class Exporter:
    """Serves `metrics`, and what the handler `prometheus` of `put_metric` has, while it is started.

    Args:
        metrics: What to serve.
        port: 0 for any free one; `start` returns it.
        host: The address to listen on. There is no access control: whoever reaches it reads it.
        values: The values of `put_metric`; default: those of this process.

    Use it as a context manager, or call `stop` after `start`.
    """

    def __init__(
        self,
        metrics: JobMetrics,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        values: PrometheusMetricHandler = PUBLISHED,
    ) -> None:
        if not 0 <= port < 65536:
            raise ValueError(f"the port of the metrics endpoint is {port}: expected a number from 0 to 65535")
        self._metrics = metrics
        self._values = values
        self._host = host
        self._port = port
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Begin to serve; returns the port.

        Raises:
            ExporterError: prometheus_client is not installed, or nothing can listen there.
            RuntimeError: It is started already.
        """
        if self._server is not None:
            raise RuntimeError("the metrics endpoint is started already")
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise ExporterError(
                "the metrics endpoint needs prometheus_client, which is not installed: "
                "pip install 'tensorplay-elastic[metrics]'"
            ) from error
        registry = CollectorRegistry()
        registry.register(self)
        try:
            server, thread = start_http_server(self._port, self._host, registry)
        except OSError as error:
            where = f"{self._host} port {self._port}"
            raise ExporterError(
                f"the metrics endpoint can't listen on {where}: {error.strerror or error}; "
                "choose another port, or 0 for any free one"
            ) from error
        # The library waits for ever for a client that connects and says nothing.
        patient = cast("type[BaseRequestHandler]", server.RequestHandlerClass)
        server.RequestHandlerClass = type(patient.__name__, (patient,), {"timeout": REQUEST_TIMEOUT})
        thread.name = "elastic-metrics"
        self._server, self._thread = server, thread
        return self.port

    def stop(self) -> None:
        """Serve no more, and free the port. Not started, or again, it does nothing."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._server = self._thread = None
        server.shutdown()
        thread.join()
        server.server_close()

    @property
    def port(self) -> int:
        """The port that it listens on; the one asked for while it is not started."""
        return self._port if self._server is None else self._server.server_port

    @property
    def url(self) -> str:
        """Where it is read."""
        return f"http://{host_and_port(self._host, self.port)}{PATH}"

    def __enter__(self) -> Exporter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now: called by prometheus_client for each scrape."""
        from prometheus_client import Metric  # noqa: PLC0415 (optional)

        now = self._metrics.snapshot()
        tallies, dropped = self._values.tallies()
        shown = {key: (tally.count, tally.total, tally.last) for key, tally in tallies.items()}
        labels = {"run_id": now.facts.run_id, "node": now.facts.node}
        families = [*job_families(now, version=elastic.__version__)]
        families += [with_labels(family, labels) for family in value_families(shown, dropped=dropped)]
        for family in families:
            metric = Metric(family.name, family.help, family.kind)
            for sample in family.samples:
                metric.add_sample(family.name + sample.suffix, dict(sample.labels), sample.value)
            yield metric
