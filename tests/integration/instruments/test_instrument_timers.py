"""Workers that run and count as failed: a deadline that passes, no first report, silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.instruments import WORKER, events, names
from support.job import Agent, Job

BEGIN = (
    WORKER
    + """
import elastic.worker as worker
print(json.dumps(place | {"pid": os.getpid()}) + "\\n", end="", flush=True)
first, second = place["round"] == 1, place["rank"] == 1
up = here + "." + str(place["round"]) + "."
open(up + str(place["rank"]), "w").close()
"""
)
LATE = """
if first and second:
    until(up + "0")
    with worker.deadline(0.5, "step"):
        time.sleep(600)
until(sys.argv[1])
"""
NEVER = """
if not second:
    worker.heartbeat()
until(sys.argv[1])
"""
SILENT = """
if second:
    until(up + "0")
while not os.path.exists(sys.argv[1]):
    if not (first and second):
        worker.heartbeat()
    elif not os.path.exists(here + ".once"):
        worker.step()
        open(here + ".once", "w").close()
    time.sleep(0.05)
"""


def start(job: Job, script: str, *flags: str, **env: str) -> Agent:
    arguments = (job.script(BEGIN + script), str(job.stop_file))
    return job.start("a", *arguments, flags=("--nproc-per-node=2", "--shutdown-timeout=5", *flags), **env)


@pytest.mark.parametrize(
    ("script", "flags", "words"),
    [
        pytest.param(LATE, (), r"the deadline 'step' of rank 1, 0\.5 s, has passed \S+ s ago", id="deadline"),
        pytest.param(
            SILENT, ("--silence-timeout=3",), r"rank 1 gave no sign of life for \S+ s", id="silence"
        ),
    ],
)
def test_a_worker_that_is_late_is_one_that_failed(
    etcd: EtcdServer, tmp_path: Path, script: str, flags: tuple[str, ...], words: str
) -> None:
    told = tmp_path / "events.jsonl"
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(job, script, "--max-restarts=1", f"--event-log-handler=file:{told}", *flags)
        agent.wait_for_world(2, after_round=1)
        job.finish()
        assert agent.wait() == 0
        assert re.search(
            rf"ERROR.*worker 1 \(local rank 1 on \S+\) counts as failed: {words}$", agent.text, re.M
        )
        assert [p["round"] for p in agent.places()] == [1, 1, 2, 2], "the other one is restarted with it"
    [failed] = [each for each in events(told) if each.name == "worker.failed"]
    assert re.fullmatch(words, failed.about["raw_error"])
    assert (failed.about["global_rank"], failed.details["exit_code"]) == (1, 124)
    health = [each.about["state"] for each in events(told) if each.name == "health.changed"]
    assert health == ["UNHEALTHY", "HEALTHY"]
    assert [each.about["cause"] for each in events(told) if each.name == "restart.begun"] == ["worker_stuck"]


def test_without_a_restart_left_its_exit_code_is_that_of_timeout(etcd: EtcdServer, tmp_path: Path) -> None:
    told = tmp_path / "events.jsonl"
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(job, NEVER, "--first-report-timeout=5", f"--event-log-handler=file:{told}")
        assert agent.wait() == 124
        report = agent.text.partition("Root Cause")[2]
        assert re.search(r"rank +: 1 ", report), agent.text
        assert re.search(r"rank 1 has reported nothing in the \S+ s since its start", report)
        assert "Stopped because of it: rank 0 (SIGTERM)" in report
    assert names(events(told))["restart.begun"] == 0, "nothing was restarted"
    assert names(events(told))["job.ended"] == 1


def test_a_process_that_is_killed_takes_its_deadline_with_it(etcd: EtcdServer, tmp_path: Path) -> None:
    script = """
import subprocess
child = "import os, elastic.worker as w\\nwith w.deadline(0.5, 'load'): os.kill(os.getpid(), 9)"
if second:
    code = subprocess.run([sys.executable, "-c", child]).returncode
    print(f"child {code}\\n", end="", flush=True)
    time.sleep(1)
"""
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(job, script)
        assert agent.wait() == 0, agent.text
        assert "child -9" in agent.text
        assert "counts as failed" not in agent.text


def test_a_timer_of_torchs_kind_is_enforced(etcd: EtcdServer, tmp_path: Path) -> None:
    script = """
import elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"], signal.SIGKILL))
if first and second:
    with timer.expires(after=0.5):
        time.sleep(600)
until(sys.argv[1])
"""
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(job, script, "--max-restarts=1", TORCHELASTIC_ENABLE_FILE_TIMER="1")
        agent.wait_for_world(2, after_round=1)
        job.finish()
        assert agent.wait() == 0
        assert re.search(r"worker 1 .*counts as failed: the deadline 'worker\.py#\d+' of rank 1", agent.text)
