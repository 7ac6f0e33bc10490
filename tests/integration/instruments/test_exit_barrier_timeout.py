"""A node whose workers are done waits for the others, but not longer than it was told to."""

from __future__ import annotations

import re
import time
from pathlib import Path

from support.etcd import EtcdServer
from support.instruments import WORKER
from support.job import Agent, Job, kill, wait_until

SCRIPT = (
    WORKER
    + """
print(json.dumps(place) + "\\n", end="", flush=True)
until(sys.argv[1] if name == "b" else here + ".end")
"""
)


def start(job: Job, name: str, seconds: float) -> Agent:
    flags = (f"--exit-barrier-timeout={seconds}",)
    return job.start(name, job.script(SCRIPT), str(job.stop_file), flags=flags)


def test_it_does_not_wait_for_longer_and_the_job_ends_well_without_it(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2", ttl=60) as job:
        a = start(job, "a", 1)
        wait_until(
            lambda: "leader" in job.key_names(), "a leads, so a later leader must know that it was done"
        )
        b = start(job, "b", 60)
        for agent in (a, b):
            agent.wait_for_world(2)
        Path(f"{job.stop_file}.a.end").touch()
        assert a.wait() == 0
        assert "the workers of this node are done; waiting for the other nodes, for 1 s at most" in a.text
        assert re.search(
            r"WARNING.*the other nodes are not done after 1 s \(exit_barrier_timeout\)", a.text
        ), a.text
        time.sleep(2.0)  # twice as long as a member that is missed has for coming back
        job.finish()
        assert b.wait() == 0, b.text
        assert len(b.places()) == 1, "nothing was restarted for it"
        assert job.record("closed")["outcome"] == "SUCCEEDED"


def test_it_does_not_wait_for_a_node_that_is_gone(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2", ttl=5) as job:
        a, b = start(job, "a", 600), start(job, "b", 600)
        for agent in (a, b):
            agent.wait_for_world(2)
        Path(f"{job.stop_file}.a.end").touch()
        [key] = [key for key in job.key_names() if key.startswith("nodes/a-")]
        wait_until(lambda: job.record(key)["want"] == "DONE", "a waits for b")
        kill(b, job)
        assert a.wait() == 0, a.text
        assert "exit_barrier_timeout" not in a.text
