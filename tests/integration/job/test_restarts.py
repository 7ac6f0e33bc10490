"""Restarts: how soon, how often, and that workers are told of those before."""

from __future__ import annotations

import json
from pathlib import Path

from support.etcd import EtcdServer
from support.job import Job

COUNTS = """
import json, os, sys
names = ("RANK", "TORCHELASTIC_RESTART_COUNT", "ELASTIC_NODE_FAILURES")
print(json.dumps({name: int(os.environ[name]) for name in names}) + "\\n", end="", flush=True)
if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] < "2":
    raise RuntimeError("not yet: " + os.environ["TORCHELASTIC_RESTART_COUNT"])
"""


def test_a_script_that_cannot_run_ends_early_with_its_error(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        flags = ("--max-restarts=100", "--max-same-failures=3", "--restart-backoff=0.1")
        agent = job.start("a", job.script("def broken(:\n"), flags=flags)
        assert agent.wait() == 1
        assert agent.text.count("SyntaxError") >= 3
        assert "--max-same-failures" in agent.lines[-1]
        assert "SyntaxError" not in agent.lines[-1], "the report above it has the cause"
        assert job.record("round")["failures"] == 2, "three attempts"
        assert agent.text.count("the next start is in") == 1, "the first restart is immediate"


def test_workers_are_told_of_failures_here_and_in_the_job(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2", ttl=30) as job:
        script = job.script(COUNTS)
        agents = [
            job.start(name, script, flags=("--max-restarts=3", "--restart-backoff=0")) for name in ("a", "b")
        ]
        assert [agent.wait() for agent in agents] == [0, 0]
        seen = {
            (place["RANK"], place["TORCHELASTIC_RESTART_COUNT"], place["ELASTIC_NODE_FAILURES"])
            for agent in agents
            for place in map(json.loads, (line for line in agent.lines if line.startswith("{")))
        }
        assert {each for each in seen if each[0] == 1} == {(1, 0, 0), (1, 1, 1), (1, 2, 2)}
        assert {count for rank, _, count in seen if rank == 0} == {0}
