"""The dashboard and the alerts ask only for metrics and labels that an agent has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.metrics import JobFacts, JobMetrics
from elastic.metrics.families import job_families

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "deploy/grafana/elastic.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"


def exported() -> dict[str, set[str]]:
    """The labels of each sample, by its whole name."""
    metrics = JobMetrics(JobFacts(run_id="run", node="alpha", lease_ttl=10))
    metrics.lease_renewed()
    metrics.typical_durations({"step": {0: 0.5}})
    metrics.etcd_answered("put", seconds=0.1)
    labels: dict[str, set[str]] = {}
    for family in job_families(metrics.snapshot(), version="1"):
        for sample in family.samples:
            labels.setdefault(family.name + sample.suffix, set()).update(sample.labels)
    return labels


def expressions(path: Path) -> Iterator[str]:
    if path.suffix == ".json":
        board = json.loads(path.read_text())
        yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
        yield from (item["definition"] for item in board["templating"]["list"] if "definition" in item)
    else:
        # The expressions and the words of the alerts: both name metrics.
        yield path.read_text().replace("name: elastic", "")


@pytest.mark.parametrize("path", [DASHBOARD, ALERTS], ids=lambda path: path.name)
def test_what_is_asked_for_exists(path: Path) -> None:
    known = exported()
    # In words a histogram goes by its name alone.
    known |= {name.removesuffix("_bucket"): labels for name, labels in known.items()}
    asked = {name for text in expressions(path) for name in re.findall(r"\belastic_\w+", text)}
    assert asked
    assert sorted(asked - known.keys()) == []
    by = {
        label
        for text in expressions(path)
        for group in re.findall(r"by \(([^)]*)\)", text)
        for label in re.split(r",\s*", group)
    }
    assert by
    assert sorted(by - set().union(*known.values())) == []


def test_every_metric_is_on_the_dashboard() -> None:
    text = "\n".join(expressions(DASHBOARD))
    # A histogram is asked for by its buckets.
    names = {re.sub("_(count|sum)$", "_bucket", name) for name in exported()}
    assert sorted(name for name in names if name not in text) == ["elastic_build_info"]


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
