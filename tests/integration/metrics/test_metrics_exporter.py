"""The metrics endpoint: on loopback, by whatever port, and gone without a trace."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from elastic.metrics import (
    Exporter,
    ExporterError,
    JobFacts,
    JobMetrics,
    MetricStream,
    PrometheusMetricHandler,
    RestartCause,
)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "elastic-metrics"]


@pytest.fixture
def metrics() -> JobMetrics:
    return JobMetrics(JobFacts(run_id='a "quoted"\n job', node="alpha"))


def read(url: str, accept: str = "*/*") -> str:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_metrics_are_read_as_they_are_at_that_moment(metrics: JobMetrics) -> None:
    values = PrometheusMetricHandler()
    with Exporter(metrics, values=values) as exporter:
        assert 'elastic_restarts_total{cause="node_lost"' in (text := read(exporter.url))
        assert r'run_id="a \"quoted\"\n job"' in text
        metrics.restarting(RestartCause.NODE_LOST)
        MetricStream("mine", values).add_value("work.duration.ms", 12)
        text = read(exporter.url)
        (line,) = [line for line in text.splitlines() if 'cause="node_lost"' in line]
        assert line.endswith(" 1.0")
        (line,) = [line for line in text.splitlines() if line.startswith("elastic_metric_last")]
        assert 'group="mine",name="work.duration.ms"' in line
        assert line.endswith(" 12.0")
        assert read(exporter.url, "application/openmetrics-text").endswith("# EOF\n")
    # Nothing of the process's own registry is shown.
    assert "python_info" not in text


def test_it_listens_on_loopback_alone_and_frees_its_port(metrics: JobMetrics) -> None:
    exporter = Exporter(metrics)
    port = exporter.start()
    assert exporter.url == f"http://127.0.0.1:{port}/metrics"
    listening = subprocess.run(["cat", "/proc/net/tcp"], capture_output=True, text=True, check=True).stdout
    (local,) = [line.split()[1] for line in listening.splitlines() if f":{port:04X} 00000000:0000 0A" in line]
    assert local == f"0100007F:{port:04X}"
    with pytest.raises(RuntimeError, match="started already"):
        exporter.start()
    exporter.stop()
    exporter.stop()
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
    # It can be started again.
    with exporter:
        assert "elastic_round" in read(exporter.url)


def test_a_port_that_is_taken_is_one_sentence(metrics: JobMetrics) -> None:
    with Exporter(metrics) as first:
        with pytest.raises(
            ExporterError, match=rf"127.0.0.1 port {first.port}: Address already in use; choose"
        ):
            Exporter(metrics, first.port).start()
        assert "elastic_round" in read(first.url)
    with pytest.raises(ExporterError, match=r"can't listen on 192\.0\.2\.1 port 0"):
        Exporter(metrics, host="192.0.2.1").start()
    with pytest.raises(ValueError, match="is 65536: expected"):
        Exporter(metrics, 65536)


def test_a_silent_client_holds_up_neither_others_nor_the_end(metrics: JobMetrics) -> None:
    with Exporter(metrics) as exporter, socket.create_connection(("127.0.0.1", exporter.port)):
        assert "elastic_round" in read(exporter.url)


def test_without_the_package_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from elastic.metrics import *\n"
        "m = JobMetrics(JobFacts(run_id='r', node='n')); m.snapshot()\n"
        "try: Exporter(m).start()\n"
        "except ExporterError as e: print(e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'tensorplay-elastic[metrics]'" in done.stdout
