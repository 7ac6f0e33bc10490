"""Nothing of a job outlives its agent, however the agent ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.effort import measure_effort
from support.etcd import EtcdServer
from support.job import SLEEPER, Job, wait_until

FAMILY = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True)
if os.fork() == 0:  # twice forked: its parent is gone
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, sleep)
    os._exit(0)
os.wait()
print('{"world": %s, "round": 1}\\n' % os.environ["WORLD_SIZE"], end="", flush=True)
time.sleep(600)
"""


@pytest.fixture
def sibling() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user's own, started beside the agent."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_of_the_job_is_left(
    etcd: EtcdServer, tmp_path: Path, number: signal.Signals, sibling: subprocess.Popen[bytes]
) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start("a", job.script(FAMILY), flags=("--nproc-per-node=2",))
        agent.wait_until(lambda a: len(a.places()) == 2, "two workers")
        wait_until(lambda: len(job.processes()) >= 8, "the workers' own processes are there")
        agent.send(number)
        took = wait_until(lambda: not job.processes(), "the job's processes are gone", patience=20)
        print(f"after {number.name} the last process of the job was gone in {took:.2f} s")
        agent.wait()
        assert sibling.poll() is None, "it is none of the job's"


def test_no_process_of_a_round_is_left_in_the_next(
    etcd: EtcdServer, tmp_path: Path, sibling: subprocess.Popen[bytes]
) -> None:
    """The workers of the second round look, before they do anything else, for what is left of the first."""
    look = """
import os, sys
old = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid != str(os.getpid())]
def environ(pid):
    try:
        return open(f"/proc/{pid}/environ", "rb").read().split(b"\\0")
    except OSError:
        return []
run = b"ELASTIC_RUN_ID=" + os.environ["ELASTIC_RUN_ID"].encode()
left = [pid for pid in old if run in (env := environ(pid)) and b"ELASTIC_ROUND=1" in env]
if os.environ["ELASTIC_ROUND"] == "2":
    print(f"left of round 1: {len(left)}\\n", end="", flush=True)
    sys.exit(0)
"""
    fails = FAMILY.rpartition("time.sleep(600)")[0] + "time.sleep(0.5)\nsys.exit(3)\n"
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start(
            "a",
            job.script(look + fails),
            flags=("--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=5"),
        )
        assert agent.wait() == 0
        assert re.findall("left of round 1: .*", agent.text) == ["left of round 1: 0"] * 2
        assert job.processes() == []
        assert sibling.poll() is None


def test_an_idle_agent_sleeps(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file))
        agent.wait_for_world(1)

        def sleeps() -> bool:
            effort = measure_effort(agent.process.pid, seconds=3.0)
            return effort.main < 5 and effort.cpu < 0.2

        wait_until(sleeps, "once its start is over its loop has nothing to do, and nothing in it spins")
        job.finish()
        assert agent.wait() == 0
