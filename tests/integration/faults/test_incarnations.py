"""The same id again: after success, after a violent death, too late, and two jobs that must never meet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.command import Command, finished
from support.etcd import EtcdServer
from support.job import Job, kill

TOKEN = "job_token=submission-1"


def run_to_success(job: Job, *names: str, conf: str = "") -> int:
    """Run agents of these names until the job has ended well; the round that they ran."""
    agents = [job.start_diarist(name, conf=conf) for name in names]
    number = max(agent.wait_for_world(len(names)) for agent in agents)
    job.finish()
    assert [agent.wait() for agent in agents] == [0] * len(names)
    return number


def test_the_same_id_runs_again_after_success(each_etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(each_etcd.endpoint, tmp_path, nodes="2") as first:
        number = run_to_success(first, "a", "b")
    with Job(each_etcd.endpoint, tmp_path, nodes="2", run_id=first.run_id) as second:
        assert run_to_success(second, "a", "b") > number, "round numbers go on"
        assert "a new run, after one that succeeded" in "".join(agent.text for agent in second.agents)
        assert second.record("closed")["incarnation"] == 2


def test_a_late_agent_of_a_job_that_has_ended(each_etcd: EtcdServer, tmp_path: Path) -> None:
    """By the job's token it knows that it is not the first of a new run."""
    with Job(each_etcd.endpoint, tmp_path, nodes="1:2") as job:
        run_to_success(job, "a", "b", conf=TOKEN)
        closed = job.record("closed")
        started = time.monotonic()
        late = job.start_diarist("late", conf=TOKEN)
        assert late.wait() == 0
        print(f"the late agent had ended {time.monotonic() - started:.1f} s after its start")
        assert "ended" in late.text, late.text
        assert "succeeded" in late.text, late.text
        assert job.diary.starts("late") == []
        assert job.record("closed") == closed, "nothing was begun anew"


def test_the_same_id_runs_again_after_everything_was_killed(each_etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(each_etcd.endpoint, tmp_path, nodes="2") as dead:
        agents = [dead.start_diarist(name) for name in ("a", "b")]
        number = max(agent.wait_for_world(2) for agent in agents)
        for agent in agents:
            kill(agent, dead)
    killed_at = time.monotonic()
    with Job(each_etcd.endpoint, tmp_path, nodes="2", run_id=dead.run_id) as again:
        agents = [again.start_diarist(name) for name in ("c", "d")]
        for agent in agents:
            agent.wait_for_world(2, after_round=number)
        took = time.monotonic() - killed_at
        print(f"the next run had its world {took:.1f} s after the death of the last; ttl is {again.ttl} s")
        assert took < again.ttl + 20  # that of the lease, and the start of two processes on a slow machine
        again.finish()
        assert [agent.wait() for agent in agents] == [0, 0]
        again.diary.check()


@pytest.mark.parametrize("where", ["standalone", "one etcd"])
def test_jobs_without_an_id_never_meet(etcd: EtcdServer, tmp_path: Path, where: str) -> None:
    on_etcd = ("--nnodes=1", "--rdzv-backend=etcd", f"--rdzv-endpoint={etcd.endpoint}")
    flags = ("--standalone",) if where == "standalone" else on_etcd
    with Command(tmp_path) as command:
        script = command.script(
            "import os, time\nprint(os.environ['ELASTIC_RUN_ID'], os.environ['WORLD_SIZE'], flush=True)\n"
            "time.sleep(2)\n"
        )
        both = [finished(process) for process in [command.start(*flags, script) for _ in range(2)]]
    assert [done.returncode for done in both] == [0, 0], both
    ids, sizes = zip(*(done.stdout.split() for done in both), strict=True)
    assert len(set(ids)) == 2
    assert sizes == ("1", "1")


def test_a_job_of_several_nodes_needs_an_id(etcd: EtcdServer, tmp_path: Path) -> None:
    """Any default would let strangers meet, and generated ones would keep its own nodes apart."""
    with Command(tmp_path) as command:
        flags = ("--nnodes=1:2", "--rdzv-backend=etcd", f"--rdzv-endpoint={etcd.endpoint}")
        done = command.run(*flags, command.script("pass\n"))
    assert done.returncode == 2
    assert "--rdzv-id" in done.stderr
