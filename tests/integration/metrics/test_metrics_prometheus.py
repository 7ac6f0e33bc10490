"""Prometheus itself: it scrapes an agent's endpoint, takes our rules, and answers what the dashboard asks."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.etcd import free_port, wait_until

from elastic.metrics import Exporter, JobFacts, JobMetrics, PrometheusMetricHandler, RestartCause

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "deploy/grafana/elastic.json"
PROMETHEUS = ROOT / "deploy/prometheus"


def promtool(*arguments: object, stdin: str = "") -> str:
    done = subprocess.run(
        ["promtool", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_rules_are_rules() -> None:
    assert "8 rules found" in promtool("check", "rules", PROMETHEUS / "alerts.yml")


def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", PROMETHEUS / "alerts_test.yml")


def queries() -> list[str]:
    """What the dashboard asks, with its variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    filled = {"$run_id": "job.*", "$__rate_interval": "1m", "$__range": "1h"}
    texts = [target["expr"] for panel in panels for target in panel["targets"]]
    for name, value in filled.items():
        texts = [text.replace(name, value) for text in texts]
    assert not [text for text in texts if "$" in text]
    return texts


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    """The endpoint of an agent to which something of every kind has happened."""
    metrics = JobMetrics(JobFacts(run_id="job 1", node="alpha", min_nodes=1, max_nodes=4, lease_ttl=10))
    metrics.entered_world(round=2, world_size=8, nodes=1, seconds=0.4)
    metrics.workers_started()
    metrics.restarting(RestartCause.NODE_LOST)
    metrics.workers({"healthy": 8})
    metrics.typical_durations({"step": dict.fromkeys(range(7), 0.5) | {7: 1.0}})
    metrics.lease_renewed()
    metrics.etcd_answered("txn", seconds=0.002)
    metrics.health_changed(healthy=False)
    values = PrometheusMetricHandler()
    with Exporter(metrics, values=values) as exporter:
        yield exporter


class Server:
    """A Prometheus that scrapes one endpoint."""

    def __init__(self, folder: Path, target: int) -> None:
        self.port = free_port()
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(PROMETHEUS / "alerts.yml")],
            "scrape_configs": [
                {"job_name": "elastic", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        promtool("check", "config", folder / "prometheus.yml")
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, what: str, **parameters: str) -> Any:
        """The answer of its HTTP interface; OSError until it is up."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def query(self, text: str) -> list[Any]:
        result: list[Any] = self.ask("query", query=text)["result"]
        return result

    def wait_for(self, text: str) -> list[Any]:
        """The answer to a query, once it has one."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None
            try:
                if result := self.query(text):
                    return result
            except OSError:
                pass  # not up yet
            time.sleep(0.1)
        raise AssertionError(f"no answer to {text}: {self.ask('targets')}")


@pytest.fixture(scope="module")
def server(exporter: Exporter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("prometheus"), exporter.port)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


def test_what_is_exposed_follows_the_conventions(exporter: Exporter) -> None:
    with urllib.request.urlopen(exporter.url, timeout=10) as answer:
        text = answer.read().decode()
    assert promtool("check", "metrics", stdin=text) == ""


def test_an_agent_is_scraped(server: Server) -> None:
    (sample,) = server.wait_for("elastic_restarts_total{cause='node_lost'}")
    labels, (_, value) = sample["metric"], sample["value"]
    assert (labels["run_id"], labels["node"], value) == ("job 1", "alpha", "1")
    server.wait_for("histogram_quantile(0.5, elastic_rendezvous_duration_seconds_bucket)")

    def is_up() -> bool:
        (target,) = server.ask("targets")["activeTargets"]
        return (target["health"], target["lastError"]) == ("up", "")

    wait_until(is_up, what="a scrape in time")


def test_the_rules_are_evaluated(server: Server) -> None:
    server.wait_for("up == 1")
    (group,) = server.ask("rules")["groups"]
    assert [rule["lastError"] for rule in group["rules"] if "lastError" in rule] == []


def test_what_the_dashboard_asks_has_an_answer(server: Server) -> None:
    # A rate needs two scrapes.
    server.wait_for("count_over_time(elastic_round[1m]) >= 2")
    for text in queries():
        # This node is in its world, so nobody is outside it.
        if "elastic_in_world" not in text:
            server.wait_for(text)  # a scrape that was late leaves a gap
