"""Whole jobs without etcd: real agents of the real command, over a store in one of them, or in a file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.etcd import free_port
from support.job import FAILER, SLEEPER, Agent, Job, kill

BACKENDS = ["p10d", pytest.param("file", marks=pytest.mark.slow)]


def job_of(backend: str, directory: Path, *, nodes: str, ttl: int = 5) -> Job:
    """Its leases outlive a machine that stands still for a while, where rounds are counted."""
    where = str(directory / "store") if backend == "file" else f"127.0.0.1:{free_port()}"
    return Job(where, directory, nodes=nodes, backend=backend, ttl=ttl)


def start(job: Job, *names: str) -> list[Agent]:
    script = job.script(SLEEPER)
    flags = ("--max-restarts=0", "--local-addr=127.0.0.1")
    return [job.start(name, script, str(job.stop_file), flags=flags) for name in names]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_node_is_killed_another_comes_and_the_job_succeeds(tmp_path: Path, backend: str) -> None:
    with job_of(backend, tmp_path, nodes="1:3") as job:
        [host] = start(job, "host")
        host.wait_for_world(1)
        others = start(job, "a", "b")
        first = max(agent.wait_for_world(3) for agent in [host, *others])
        victim, survivor = others
        kill(victim, job)
        second = {agent.wait_for_world(2, after_round=first) for agent in (host, survivor)}
        assert second == {first + 1}
        [newcomer] = start(job, "c")
        running = [host, survivor, newcomer]
        assert {agent.wait_for_world(3, after_round=first + 1) for agent in running} == {first + 2}
        job.finish()
        assert [agent.wait() for agent in running] == [0, 0, 0]
        assert {p["restarts"] for agent in job.agents for p in agent.places()} == {0}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_that_fails_starts_anew_until_its_restarts_are_spent(tmp_path: Path, backend: str) -> None:
    with job_of(backend, tmp_path, nodes="2", ttl=20) as job:
        script = job.script(FAILER)
        flags = ("--max-restarts=1", "--local-addr=127.0.0.1")
        agents = [
            job.start(name, script, str(job.stop_file), "1", "7", "2", flags=flags) for name in ("a", "b")
        ]
        for agent in agents:
            assert agent.wait() == 7
            assert {(p["round"], p["restarts"]) for p in agent.places()} == {(1, 0), (2, 1)}


def test_the_host_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Meanwhile the workers of the others run on; then all of them are one world again."""
    with job_of("p10d", tmp_path, nodes="1:3") as job:
        [host] = start(job, "host")
        host.wait_for_line("this agent runs the store")
        others = start(job, "a", "b")
        first = max(agent.wait_for_world(3) for agent in [host, *others])
        kill(host, job)
        for agent in others:
            agent.wait_for_line(
                rf"the store at {job.endpoint}, which runs in the agent on that host, is away .*run on"
            )
        time.sleep(0.5)  # a mistake would need a moment to show
        assert {p["round"] for agent in others for p in agent.places()} <= set(range(1, first + 1))
        [returned] = start(job, "host")
        running = [*others, returned]
        second = {agent.wait_for_world(3, after_round=first) for agent in running}
        assert len(second) == 1
        for agent in others:
            agent.wait_for_line("which runs in the agent on that host, is back after")
            assert "etcd" not in agent.text
        job.finish()
        assert [agent.wait() for agent in running] == [0, 0, 0]
