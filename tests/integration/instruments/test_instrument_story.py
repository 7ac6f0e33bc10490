"""Events and metrics of one job through all that can happen to it: nodes come, go and die, etcd sleeps."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.command import ROOT
from support.etcd import EtcdServer
from support.instruments import (
    WORKER,
    Scrape,
    Told,
    events,
    names,
    scrape,
    wait_for_event,
)
from support.job import Agent, Job, kill

from elastic.etcd import Client

SCRIPT = (
    WORKER
    + """
print(json.dumps(place) + "\\n", end="", flush=True)
while not os.path.exists(sys.argv[1]):
    if os.path.exists(here + ".fail"):
        os.remove(here + ".fail")
        raise ValueError("a bad batch")
    time.sleep(0.05)
"""
)
MEMBERSHIP = ("world.formed", "world.superseded", "node.joined", "node.left", "node.lost")


@dataclass
class Story:
    """What a job has told: events by node, and metrics of one node by the moment."""

    run_id: str
    files: dict[str, Path]
    metrics: dict[str, Scrape] = field(default_factory=dict)

    def of(self, node: str, name: str = "") -> list[Told]:
        return [each for each in events(self.files[node]) if name in ("", each.name)]

    def of_all(self, *wanted: str) -> list[Told]:
        return [each for node in self.files for each in events(self.files[node]) if each.name in wanted]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("story")
    with (
        EtcdServer(tmp_path_factory.mktemp("etcd")) as server,
        Job(server.start().wait_ready().endpoint, directory, nodes="1:3", ttl=30, last_call=20) as job,
    ):
        story = Story(job.run_id, {name: directory / f"{name}.jsonl" for name in "abcd"})
        script = job.script(SCRIPT)

        def start(name: str) -> Agent:
            destination = f"--event-log-handler=file:{story.files[name]}"
            flags = ("--max-restarts=1", destination, "--metrics-port=0")
            # Whose lease is revoked has a while for coming back, also on a slow machine.
            return job.start(name, script, str(job.stop_file), flags=flags, conf="rejoin_grace=5")

        a = start("a")
        a.wait_for_line("open: round 1")  # so that it is the one that leads
        b, c = start("b"), start("c")
        number = max(agent.wait_for_world(3) for agent in (a, b, c))
        wait_for_event(story.files["a"], "worker.started")  # a worker may speak before its agent tells of it
        story.metrics["three"] = scrape(a)

        kill(c, job)
        revoke_lease(server, job, "c")  # sooner than it ends by itself
        number = max(agent.wait_for_world(2, after_round=number) for agent in (a, b))
        d = start("d")
        number = max(agent.wait_for_world(3, after_round=number) for agent in (a, b, d))

        Path(f"{job.stop_file}.b.fail").touch()
        number = max(agent.wait_for_world(3, after_round=number) for agent in (a, b, d))

        revoke_lease(server, job, "b")
        wait_for_event(story.files["b"], "lease.regained")

        d.send(signal.SIGTERM)
        assert d.wait() == 143
        number = max(agent.wait_for_world(2, after_round=number) for agent in (a, b))

        server.pause()
        for agent in (a, b):
            agent.wait_for_line("etcd is away")
        wait_for_event(story.files["a"], "etcd.away")
        story.metrics["away"] = scrape(a)
        server.resume()
        for agent in (a, b):
            agent.wait_for_line("etcd is back")
        wait_for_event(story.files["a"], "etcd.back")
        story.metrics["back"] = scrape(a)

        job.finish()
        assert [a.wait(), b.wait()] == [0, 0]
        yield story


def revoke_lease(server: EtcdServer, job: Job, name: str) -> None:
    """As an operator might, or a cluster that was restored."""
    [key] = [key for key in job.key_names() if key.startswith(f"nodes/{name}-")]
    with Client([server.endpoint]) as client:
        kv = client.get(f"/elastic/{job.run_id}/{key}".encode())
    assert kv is not None
    server.ctl("lease", "revoke", f"{kv.lease:x}")


def test_a_node_that_joins_goes_or_dies_is_told_of_once_by_one_node(story: Story) -> None:
    told = [(each.name, each.about["node"]) for each in story.of_all("node.joined", "node.left", "node.lost")]
    joined = [node for name, node in told if name == "node.joined"]
    # b registered a second time when its lease was revoked.
    assert sorted(set(joined)) == ["a", "b", "c", "d"]
    assert [told.count(("node.joined", node)) for node in "acd"] == [1, 1, 1]
    assert told.count(("node.lost", "c")) == 1
    assert told.count(("node.left", "d")) == 1
    assert {node for name, node in told if name == "node.left"} == {"d"}
    assert {node for name, node in told if name == "node.lost"} <= {"b", "c"}


def test_every_change_of_the_membership_says_of_whom_why_and_when(story: Story) -> None:
    for node in story.files:
        for each in story.of(node):
            assert each.about["run_id"] == story.run_id
            assert each.about["node"] in story.files
            assert each.about["node_id"].startswith(each.about["node"] + "-")
            assert each.about["reporter"] == node
            assert each.about["revision"] > 0, each
            if each.name in MEMBERSHIP:
                assert each.about["cause"], each


def test_revisions_order_the_changes_that_several_nodes_tell_of(story: Story) -> None:
    changes = sorted(story.of_all(*MEMBERSHIP), key=lambda each: each.about["revision"])
    formed = [each.about["round"] for each in changes if each.name == "world.formed"]
    assert formed == sorted(formed)
    assert set(formed) == {1, 2, 3, 4, 5}
    order = [
        (each.name, each.about["node"])
        for each in changes
        if each.name.startswith("node.") and each.about["node"] != "b"
    ]
    assert order == [
        ("node.joined", "a"),
        ("node.joined", "c"),
        ("node.lost", "c"),
        ("node.joined", "d"),
        ("node.left", "d"),
    ]
    by_revision: dict[int, set[str]] = {}
    for each in changes:
        by_revision.setdefault(each.about["revision"], set()).add(each.name)
    assert all(len(kinds & {"world.formed", "world.superseded"}) < 2 for kinds in by_revision.values())


def test_a_worker_fails_on_one_node_and_is_a_failed_peer_on_the_others(story: Story) -> None:
    [failed] = story.of_all("worker.failed")
    assert failed.about["node"] == "b"
    assert "ValueError: a bad batch" in failed.about["raw_error"]
    assert failed.details["exit_code"] == 1
    causes = {node: [each.about["cause"] for each in story.of(node, "restart.begun")] for node in "abd"}
    assert causes == {
        "a": ["node_lost", "node_joined", "peer_failed", "node_left"],
        "b": ["node_lost", "node_joined", "worker_failed", "node_left"],
        "d": ["peer_failed"],
    }


def test_each_worker_has_a_beginning_and_an_end(story: Story) -> None:
    for node in "abd":
        told = names(story.of(node))
        ends = told["worker.stopped"] + told["worker.failed"] + told["worker.succeeded"]
        assert told["worker.started"] == ends == {"a": 5, "b": 5, "d": 2}[node]
        # d went before its last one was.
        assert told["world.superseded"] == ends - 1


def test_a_lease_that_was_revoked_costs_no_restart(story: Story) -> None:
    for node in "acd":
        assert not story.of(node, "lease.lost")
    told = [each.name for each in story.of("b")]
    assert (told.count("lease.lost"), told.count("lease.regained")) == (1, 1)
    assert told.index("lease.lost") < told.index("lease.regained")


def test_an_outage_is_told_once_each_way_by_each_node(story: Story) -> None:
    for node, times in {"a": 1, "b": 1, "c": 0, "d": 0}.items():
        told = names(story.of(node))
        assert (told["etcd.away"], told["etcd.back"]) == (times, times)


def test_the_end_is_told_by_who_is_there(story: Story) -> None:
    ended = {node: [each.about["state"] for each in story.of(node, "job.ended")] for node in story.files}
    assert ended == {"a": ["SUCCEEDED"], "b": ["SUCCEEDED"], "c": [], "d": []}
    assert not story.of_all("world.lost"), "a node that was told to leave is not lost"


def test_the_metrics_follow(story: Story) -> None:
    three, away, back = (story.metrics[moment] for moment in ("three", "away", "back"))
    assert (three["elastic_round"], three["elastic_world_size"], three["elastic_world_nodes"]) == (1, 3, 3)
    assert (back["elastic_round"], back["elastic_world_size"], back["elastic_in_world"]) == (5, 2, 1)
    assert [m["elastic_etcd_away"] for m in (three, away, back)] == [0, 1, 0]
    assert [m["elastic_etcd_outages_total"] for m in (three, away, back)] == [0, 1, 1]
    assert back["elastic_etcd_away_seconds_total"] > 0
    for cause, times in {"node_lost": 1, "node_joined": 1, "peer_failed": 1, "node_left": 1}.items():
        sample = f'elastic_restarts_total{{cause="{cause}"}}'
        assert (three[sample], back[sample]) == (0, times)
    assert back['elastic_restarts_total{cause="worker_failed"}'] == 0
    assert back["elastic_rendezvous_duration_seconds_count"] == 5
    assert 0 < back["elastic_rendezvous_duration_seconds_sum"] < 60
    assert three["elastic_training_time_lost_seconds_total"] == 0
    assert 0 < back["elastic_training_time_lost_seconds_total"] < back["elastic_training_seconds_total"] + 60
    assert back["elastic_worlds_entered_total"] == 5
    assert back["elastic_lease_losses_total"] == 0
    assert [m["elastic_lease_ttl_seconds"] for m in (three, back)] == [30, 30]
    assert 0 <= three["elastic_lease_age_seconds"] < 30
    assert back['elastic_worker_state{state="healthy"}'] == 1
    assert back["elastic_healthy"] == 1


@pytest.mark.parametrize("path", ["grafana/elastic.json", "prometheus/alerts.yml"])
def test_an_agent_has_all_that_the_dashboard_and_the_alerts_ask_for(story: Story, path: str) -> None:
    text = (ROOT / "deploy" / path).read_text().replace("name: elastic", "")
    told = {line.split("{")[0] for line in story.metrics["back"].text.splitlines() if line[0] != "#"}
    # In words a histogram goes by its name alone.
    told |= {name.removesuffix("_bucket") for name in told}
    told.add("elastic_section_duration_seconds")  # which needs workers that report their steps
    assert set(re.findall(r"\belastic_\w+", text)) - told == set()


def test_prometheus_takes_the_metrics(story: Story) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=story.metrics["back"].text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
