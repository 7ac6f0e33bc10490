"""Instruments in trouble of their own, and workers that overdo it: the job goes on, and nothing is hidden."""

from __future__ import annotations

import signal
from pathlib import Path

from support.effort import measure_effort
from support.etcd import EtcdServer
from support.instruments import WORKER, events, names, wait_for_event
from support.job import SLEEPER, Job, kill, wait_until

FLOOD = (
    WORKER
    + """
import elastic.worker as worker
print(json.dumps(place), flush=True)
while not os.path.exists(sys.argv[1]):
    for _ in range(1000):
        worker.step()
        with worker.deadline(600, "step"):
            pass
"""
)


def test_a_full_disk_costs_events_and_nothing_else(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        script = job.script("print('done', flush=True)")
        agent = job.start("a", script, flags=("--event-log-handler=file:/dev/full",))
        assert agent.wait() == 0
        assert "done" in agent.lines
        assert agent.text.count("an event could not be recorded at 'file:/dev/full'") == 1
        assert "Traceback" not in agent.text


def test_without_the_package_the_metrics_are_refused_in_a_sentence(etcd: EtcdServer, tmp_path: Path) -> None:
    package = tmp_path / "prometheus_client"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it is not there')")
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        script = job.script("raise SystemExit('a worker was started')")
        agent = job.start("a", script, flags=("--metrics-port=0",))
        assert agent.wait() == 2
        assert agent.lines[-1] == (
            "elasticrun: error: the metrics endpoint needs prometheus_client, which is not installed: "
            "pip install 'tensorplay-elastic[metrics]'"
        )
        assert job.key_names() == []


def test_a_flood_of_reports_costs_the_agent_nothing(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = job.start("a", job.script(FLOOD), str(job.stop_file))
        agent.wait_for_world(1)

        def rests() -> bool:
            effort = measure_effort(agent.process.pid, seconds=1.5)
            return effort.main < 20 and effort.cpu < 0.1

        wait_until(rests, "once its start is over it rests")
        job.finish()
        assert agent.wait() == 0


def test_what_an_agent_told_before_it_was_killed_is_kept(etcd: EtcdServer, tmp_path: Path) -> None:
    told = tmp_path / "events.jsonl"
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=2) as job:
        flags = (f"--event-log-handler=file:{told}", "--health-port=0")
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file), flags=flags)
        agent.wait_for_world(1)
        for name in ("node.joined", "world.formed", "worker.started"):
            wait_for_event(told, name)
        kill(agent, job)
        assert names(events(told)) == {"node.joined": 1, "world.formed": 1, "worker.started": 1}


def test_an_agent_that_is_ended_before_it_runs_leaves_no_file(etcd: EtcdServer, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with Job(etcd.endpoint, tmp_path, nodes="2", ttl=60) as job:
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file), TMPDIR=str(temporary))
        agent.wait_for_line("open: round 1|run id")
        agent.send(signal.SIGTERM)
        assert agent.wait() == 143
    assert [path.name for path in temporary.iterdir() if path.name.startswith("elastic-reports")] == []
