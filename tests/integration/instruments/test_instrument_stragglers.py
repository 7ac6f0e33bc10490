"""The agent names a worker that is slower than the others, and nobody where all are even."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.instruments import WORKER, events, scrape, wait_for_event
from support.job import Agent, Job

SCRIPT = (
    WORKER
    + """
import elastic.worker as worker
slow, seconds, steps = int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
for step in range(steps):
    time.sleep(2 * seconds if place["rank"] == slow else seconds)
    worker.step()
    if place["rank"] == slow or step == steps - 1:
        print(f"rank {place['rank']} has done step {step + 1}", flush=True)
    if os.path.exists(sys.argv[1]):
        break
"""
)


def start(job: Job, *, slow: int, seconds: float, steps: int, flags: tuple[str, ...] = ()) -> Agent:
    arguments = (str(job.stop_file), str(slow), str(seconds), str(steps))
    return job.start("a", job.script(SCRIPT), *arguments, flags=("--nproc-per-node=4", *flags))


def test_the_one_of_four_that_takes_twice_as_long_is_named_within_twenty_steps(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    told = tmp_path / "events.jsonl"
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        flags = (f"--event-log-handler=file:{told}", "--metrics-port=0")
        agent = start(job, slow=2, seconds=0.1, steps=500, flags=flags)
        agent.wait_for_line(r"WARNING.*rank \d is slow")
        lines = list(agent.lines)
        wait_for_event(told, "health.changed")
        metrics = scrape(agent)
        job.finish()
        assert agent.wait() == 0
        named = re.findall(r"WARNING.*: rank (\d) is slow: its steps took", agent.text)
        assert named == ["2"]
        until_then = lines[: next(i for i, line in enumerate(lines) if "is slow" in line)]
        assert sum("rank 2 has done step" in line for line in until_then) <= 20
        [health] = [each for each in events(told) if each.name == "health.changed"]
        assert health.about["state"] == "UNHEALTHY"
        assert "rank 2 is slow" in health.about["cause"]
        typical = {rank: metrics[f'elastic_section_duration_seconds{{rank="{rank}"}}'] for rank in range(4)}
        assert max(typical, key=lambda rank: typical[rank]) == 2
        assert metrics["elastic_healthy"] == 0


def test_nobody_is_named_where_that_is_switched_off(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
        agent = start(job, slow=2, seconds=0.02, steps=30, flags=("--no-stragglers",))
        assert agent.wait() == 0
        assert agent.text.count("has done step 30") == 4
        assert "is slow" not in agent.text


@pytest.mark.slow
def test_of_four_even_ones_nobody_is_named_in_a_thousand_steps_on_a_busy_machine(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with Job(etcd.endpoint, tmp_path, nodes="1", ttl=60) as job:
            agent = start(job, slow=-1, seconds=0.02, steps=1000)
            assert agent.wait() == 0
            assert agent.text.count("has done step 1000") == 4
            assert "rank" not in " ".join(line for line in agent.lines if "WARNING" in line)
    finally:
        for process in busy:
            process.kill()
            process.wait()
