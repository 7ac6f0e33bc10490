"""Workers fail: every node regroups, the budget is the whole job's, the last failure ends it everywhere."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import FAILER, Agent, Job


def start(job: Job, *, code: int, times: int, max_restarts: int) -> list[Agent]:
    script = job.script(FAILER)
    arguments = (str(job.stop_file), "1", str(code), str(times))
    flags = (f"--max-restarts={max_restarts}",)
    return [job.start(name, script, *arguments, flags=flags) for name in ("a", "b", "c")]


def test_a_failure_restarts_every_node_at_once(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="3", ttl=30) as job:
        agents = start(job, code=3, times=2, max_restarts=3)
        for agent in agents:
            agent.wait_until(lambda a: [p for p in a.places() if p["round"] == 3], "round 3")
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0, 0]
        for agent in agents:
            seen = [(p["round"], p["restarts"]) for p in agent.places()]
            assert seen == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize(
    ("code", "exit_code", "words"),
    [(3, 3, "exit code 3"), (-signal.SIGKILL, 137, "SIGKILL"), (-signal.SIGSEGV, 139, "SIGSEGV")],
)
def test_the_last_failure_ends_the_job_on_every_node(
    etcd: EtcdServer, tmp_path: Path, code: int, exit_code: int, words: str
) -> None:
    # No lease ends within this test: whatever is known is known by word, not by silence.
    with Job(etcd.endpoint, tmp_path, nodes="3", ttl=300) as job:
        agents = start(job, code=code, times=100, max_restarts=2)
        assert [agent.wait() for agent in agents] == [exit_code] * 3
        attempts = [len(agent.places()) for agent in agents]
        assert attempts == [3] * 3, "three attempts in all, whatever the number of nodes"
        closed = job.record("closed")
        assert (closed["outcome"], closed["exitCode"]) == ("FAILED", exit_code)
        for agent in agents:
            assert "worker 1" in agent.text, agent.text
            assert words in agent.text, agent.text
            assert "--max-restarts=2" in agent.text
            assert "Traceback" not in agent.text
        assert job.node_names() == set()


def test_a_failure_that_a_lost_node_explains_costs_nothing(etcd: EtcdServer, tmp_path: Path) -> None:
    """When a machine dies, the workers of the others fail before anybody knows why."""
    with Job(etcd.endpoint, tmp_path, nodes="1:3") as job:
        script = job.script(
            "import os, sys, time\n"
            "place = tuple(os.environ[n] for n in ('ELASTIC_ROUND', 'WORLD_SIZE', 'RANK'))\n"
            'print(\'{"round": %s, "world": %s, "rank": %s}\\n\' % place, end="", flush=True)\n'
            "while not os.path.exists(sys.argv[1]):\n"
            "    time.sleep(0.05)\n"
            "    if os.path.exists(sys.argv[2]) and os.environ['WORLD_SIZE'] == '3':\n"
            "        sys.exit('lost my peer')\n"
        )
        crash = tmp_path / "crash"
        flags = ("--max-restarts=0",)
        agents = [
            job.start(name, script, str(job.stop_file), str(crash), flags=flags) for name in ("a", "b", "c")
        ]
        first = max(agent.wait_for_world(3) for agent in agents)
        lost = agents.pop(1)
        lost.send(signal.SIGKILL)
        crash.touch()
        for agent in agents:
            agent.wait_for_world(2, after_round=first)
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0]
        assert job.record("round")["failures"] == 0
