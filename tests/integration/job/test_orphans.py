"""Nothing of a job outlives its agent, however the agent ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import Job, wait_until

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
print('{"world": %s, "round": 1}' % os.environ["WORLD_SIZE"], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_of_the_job_is_left(etcd: EtcdServer, tmp_path: Path, number: signal.Signals) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        agent = job.start("a", job.script(FAMILY), flags=("--nproc-per-node=2",))
        agent.wait_until(lambda a: len(a.places()) == 2, "two workers")
        assert len(job.processes()) >= 8
        agent.send(number)
        took = wait_until(lambda: not job.processes(), "the job's processes are gone", patience=20)
        print(f"after {number.name} the last process of the job was gone in {took:.2f} s")
        agent.wait()
