"""The report of a job that failed: for a script that knows nothing of it, and the same on every node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import Agent, Job

# Rank 2 fails in one of three ways once all have started; when it does, the others fail as of a lost peer.
SCRIPT = """
import ctypes, os, pathlib, signal, sys, time
here, how = pathlib.Path(sys.argv[1]), sys.argv[2]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
(here / f"up-{rank}").touch()
while not all((here / f"up-{other}").exists() for other in range(world)):
    time.sleep(0.02)
if rank == 2:
    (here / "pid").write_text(str(os.getpid()))
    (here / "pid").rename(here / "fails")
    print("the last words", file=sys.stderr, flush=True)
    if how == "raise":
        raise ValueError("a bad batch")
    os.kill(os.getpid(), getattr(signal, how))
while not (here / "fails").exists():
    time.sleep(0.02)
if rank == 3:
    stat = pathlib.Path("/proc", (here / "fails").read_text(), "stat")
    while stat.exists() and " Z " not in stat.read_text():  # however long it takes to die
        time.sleep(0.02)
    time.sleep(3)
    sys.exit("lost my peer")
time.sleep(600)
"""


def report_of(agent: Agent) -> str:
    """The root cause in an agent's report."""
    found = re.search(
        r"Root Cause \(first observed failure\):\n(.*?)\n\nOther Failures", agent.text, re.DOTALL
    )
    assert found, agent.text
    return found.group(1)


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("raise", 1, ["ValueError: a bad batch", 'raise ValueError("a bad batch")']),
        ("SIGKILL", 137, ["SIGKILL", "killed from outside"]),
        ("SIGSEGV", 139, ["SIGSEGV"]),
    ],
)
def test_every_node_reports_the_same_cause_of_a_plain_script(
    etcd: EtcdServer, tmp_path: Path, how: str, code: int, words: list[str]
) -> None:
    # No lease ends within this test: nothing is known by silence.
    with Job(etcd.endpoint, tmp_path, nodes="2", ttl=300) as job:
        script = job.script(SCRIPT)
        flags = ("--nproc-per-node=2", "--redirects=2", "--shutdown-timeout=5")
        agents = []
        for name in ("a", "b"):
            logs = f"--log-dir={tmp_path / name}"
            agents.append(job.start(name, script, str(tmp_path), how, flags=(*flags, logs)))
        assert [agent.wait() for agent in agents] == [code, code]

        first, second = (report_of(agent) for agent in agents)
        for report in (first, second):
            assert re.search(r"rank +: 2 ", report), report
            for word in [*words, "the last words", "error_file: <N/A>"]:
                assert word in report, report
            log = re.search(r"log +: (\S+)", report)
            assert log, report
            assert "the last words" in Path(log.group(1)).read_text()
        assert first == second, "one report for the whole job"
        for agent in agents:
            assert "launcher" not in agent.text.partition("Root Cause")[2]
            assert "--max-restarts=0 allows no further restart" in agent.lines[-1]
        failure = job.record("closed")["failure"]
        assert (failure["rank"], failure["exitCode"]) == (2, code)
        assert len(str(failure)) < 20_000


def test_victims_are_told_from_failures(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1") as job:
        script = job.script(SCRIPT)
        agent = job.start("a", script, str(tmp_path), "raise", flags=("--nproc-per-node=3",))
        assert agent.wait() == 1
        assert "<NO_OTHER_FAILURES>" in agent.text
        assert "Stopped because of it: rank 0 (SIGTERM), 1 (SIGTERM)" in agent.text
