"""The exit code of an agent tells how its part of the job ended: the table of the README, row by row."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.etcd import EtcdServer, free_port
from support.job import FAILER, SLEEPER, Job, wait_until
from support.relay import Relay


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, 0),
        (1, 1),
        (3, 3),
        (77, 77),
        (255, 255),
        (-signal.SIGSEGV, 139),
        (-signal.SIGKILL, 137),
        (-signal.SIGABRT, 134),
        (-(signal.SIGRTMIN + 3), 128 + signal.SIGRTMIN + 3),
    ],
)
def test_a_workers_end(etcd: EtcdServer, tmp_path: Path, code: int, expected: int) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start("a", job.script(FAILER), str(job.stop_file), "0", str(code), "1")
        assert agent.wait() == expected
        assert ("Root Cause" in agent.text) == (expected != 0)


def test_no_world_in_time(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2") as job:
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file), conf="join_timeout=3")
        assert agent.wait() == 75
        assert "1 missing" in agent.text


def test_an_etcd_that_is_not_there(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        nobody = f"127.0.0.1:{free_port()}"
        script = job.script(SLEEPER)
        agent = job.start(
            "a", script, str(job.stop_file), endpoint=nobody, conf="connect_timeout=1,join_timeout=1"
        )
        assert agent.wait() == 69


def test_a_job_of_other_bounds(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:2") as job:
        script = job.script(SLEEPER)
        first = job.start("a", script, str(job.stop_file))
        first.wait_for_world(1)
        job.nodes = "1:3"
        assert job.start("b", script, str(job.stop_file)).wait() == 76
        job.finish()
        assert first.wait() == 0


def test_a_node_that_was_evicted(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file))
        agent.wait_for_world(1)
        wait_until(
            lambda: "ACTIVE" in str([job.record(k) for k in job.key_names() if k.startswith("nodes/")]),
            "it runs",
        )
        [key] = [key for key in job.key_names() if key.startswith("nodes/")]
        etcd.ctl("del", f"/elastic/{job.run_id}/{key}")
        assert agent.wait() == 76
        assert "evicted" in agent.text or "deleted" in agent.text
        assert job.processes() == []


def test_a_node_that_lost_etcd_for_good(etcd: EtcdServer, tmp_path: Path) -> None:
    host, _, port = etcd.endpoint.rpartition(":")
    with Relay((host, int(port))) as relay, Job(etcd.endpoint, tmp_path, nodes="1") as job:
        conf = "failsafe_timeout=2,read_timeout=1,heartbeat_timeout=1,close_timeout=1"
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file), endpoint=relay.endpoint, conf=conf)
        agent.wait_for_world(1)
        relay.pause()
        assert agent.wait() == 69
        assert "failsafe_timeout" in agent.text
        assert job.processes() == []


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3)])
def test_a_job_that_is_done_already(etcd: EtcdServer, tmp_path: Path, code: int, expected: int) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        arguments = (job.script(FAILER), str(job.stop_file), "0", str(code), "1")

        def run() -> int:
            return job.start("a", *arguments, conf="job_token=7").wait()

        assert run() == expected
        assert run() == expected
        assert job.agents[-1].places() == [], "it starts nothing"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_order_to_leave(etcd: EtcdServer, tmp_path: Path, number: signal.Signals) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file))
        agent.wait_for_world(1)
        agent.send(number)
        assert agent.wait() == 128 + number
