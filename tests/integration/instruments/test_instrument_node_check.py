"""A program of the operator's says whether a node may join: before it does, and in bounded time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import SLEEPER, Agent, Job

UNKNOWN = [
    pytest.param("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV", id="crash"),
    pytest.param("import time; time.sleep(600)", "did not end within 0.5 s", id="hang"),
    pytest.param("raise SystemExit(3)", "ended with exit code 3", id="other code"),
    pytest.param("import nothing_of_that_name", "ended with an uncaught exception", id="broken"),
    pytest.param(
        "import os; os.write(1, b'\\xff\\x00' * 70_000); os._exit(9)", "ended with exit code 9", id="garbage"
    ),
]


def start(job: Job, check: str, *flags: str) -> Agent:
    command = f"python3 {job.script(check, 'check.py')}"
    checked = (f"--node-check={command}", *flags)
    return job.start("a", job.script(SLEEPER), str(job.stop_file), flags=checked)


def labels(job: Job) -> dict[str, str]:
    """The labels in the record of the one node."""
    [key] = [key for key in job.key_names() if key.startswith("nodes/a-")]
    found: dict[str, str] = job.record(key)["labels"]
    return found


def test_a_good_node_joins_and_says_so(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(job, "print('all well')")
        agent.wait_for_world(1)
        assert labels(job)["node-check"] == "good"
        job.finish()
        assert agent.wait() == 0
        assert "the node check found nothing" in agent.text


def test_a_bad_node_does_not_join(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(job, "print('GPU 3 is gone'); raise SystemExit(1)")
        assert agent.wait() == 71
        assert agent.lines[-1] == (
            "elasticrun: error: the node check found this node to be bad: GPU 3 is gone; "
            "this node does not join"
        )
        assert "Traceback" not in agent.text
        assert agent.places() == []
        assert job.key_names() == []


@pytest.mark.parametrize(("check", "words"), UNKNOWN)
def test_a_check_that_does_not_work_keeps_nobody_out(
    etcd: EtcdServer, tmp_path: Path, check: str, words: str
) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(
            job, check, "--node-check-timeout=0.5" if "sleep" in check else "--node-check-timeout=20"
        )
        agent.wait_for_world(1)
        found = labels(job)
        assert found["node-check"] == "unknown"
        assert words in found["node-check-reason"]
        job.finish()
        assert agent.wait() == 0
        assert re.search(rf"WARNING.*{re.escape(words)}.*; this node joins", agent.text)


def test_a_check_that_is_not_there_keeps_nobody_out(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        flags = ("--node-check=no-such-program --fast",)
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file), flags=flags)
        agent.wait_for_world(1)
        job.finish()
        assert agent.wait() == 0
        assert re.search(r"WARNING.*the node check cannot be started: .*no-such-program", agent.text)
