"""A job that has no world says why, from time to time; one that lost etcd may have a limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import Agent, Job

MakeServer = Callable[..., EtcdServer]

PATIENT = "progress_interval=0.5"


def waits(agent: Agent) -> list[str]:
    return re.findall(r"INFO elastic.rendezvous: still waiting for a world: (.*)", agent.text)


def test_who_waits_says_for_whom(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="3") as job:
        early = job.start_diarist("early", conf=PATIENT)
        alone = "has 1 of at least 3 nodes: 2 missing; joined: early"
        early.wait_until(
            lambda a: sum(alone in said for said in waits(a)) >= 2, "it says that it waits, again"
        )
        second = job.start_diarist("second", conf=PATIENT)
        both = "has 2 of at least 3 nodes: 1 missing; joined: early, second"
        for agent in (early, second):
            agent.wait_until(lambda a: any(both in said for said in waits(a)), "it says what has changed")
        third = job.start_diarist("third", conf="progress_interval=30")
        for agent in job.agents:
            agent.wait_for_world(3)
        assert waits(third) == [], "who need not wait says nothing"
        job.finish()
        assert [agent.wait() for agent in job.agents] == [0, 0, 0]


def test_a_spare_says_what_it_is(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        job.start_diarist("a").wait_for_world(1)
        spare = job.start_diarist("b", conf=PATIENT)
        what = "round 1 runs with 1 nodes; running: a; spare: b"
        spare.wait_until(lambda a: any(what in said for said in waits(a)), "it says what it is")
        job.finish()
        assert [agent.wait() for agent in job.agents] == [0, 0]


@pytest.mark.parametrize("outage", ["pause", "kill"])
def test_a_limit_to_life_without_etcd(etcd_server: MakeServer, tmp_path: Path, outage: str) -> None:
    """The one agent that has a limit stops its workers and ends; the other one waits, with its own."""
    server = etcd_server()
    with Job(server.endpoint, tmp_path, nodes="2", ttl=60) as job:
        quick = "read_timeout=1,heartbeat_timeout=1,close_timeout=1"
        patient = job.start_diarist("patient", conf=quick)
        hasty = job.start_diarist("hasty", conf=f"{quick},failsafe_timeout=4")
        for agent in (patient, hasty):
            agent.wait_for_world(2)
        getattr(server, outage)()
        assert hasty.wait() == 69
        assert "etcd has been away for 4 s (failsafe_timeout)" in hasty.text
        [worker] = job.diary.starts("hasty")
        assert job.diary.end_of(worker) is not None, "its worker was told to end"
        [worker] = job.diary.starts("patient")
        assert job.diary.end_of(worker) is None
        assert patient.process.poll() is None


def test_who_waits_says_that_etcd_does_not_answer_and_may_give_up(
    etcd_server: MakeServer, tmp_path: Path
) -> None:
    server = etcd_server()
    with Job(server.endpoint, tmp_path, nodes="2", ttl=2) as job:
        quick = "read_timeout=1,heartbeat_timeout=1,close_timeout=1,failsafe_timeout=6"
        agent = job.start_diarist("a", conf=f"{PATIENT},{quick}")
        agent.wait_until(waits, "it says that it waits")
        server.kill()
        agent.wait_until(lambda a: "etcd does not answer" in waits(a), "it says what is wrong")
        assert agent.wait() == 69
        assert "etcd has been away for 6 s (failsafe_timeout)" in agent.text
        assert "Traceback" not in agent.text
