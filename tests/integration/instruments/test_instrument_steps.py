"""A program that launches a job itself has its rendezvous and its metrics told to the handlers of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.command import PATIENCE, environment

PROGRAM = """
import logging, sys
from elastic import events, metrics
from elastic.launcher import LaunchConfig, elastic_launch

if __name__ == "__main__":
    events.register_event_handler("dynamic_rendezvous", logging.FileHandler("steps.jsonl"))
    metrics.configure(metrics.ConsoleMetricHandler())
    elastic_launch(LaunchConfig(run_id="job", role="mine"), sys.executable)("-c", "pass")
    print(open("steps.jsonl").read(), end="")  # all are there when it returns
"""


def test_what_an_agent_tells_goes_to_the_handlers_of_its_program(tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "launch.py"],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [each["name"] for each in told] == [
        "elastic.node.joined",
        "elastic.world.formed",
        "elastic.job.ended",
    ]
    assert {each["run_id"] for each in told} == {"job"}
    for metric in ("healthy=1", "succeeded=1", "run_success_no_retries=1", "flakiness=0"):
        assert f"[torchelastic]: workers.mine.{metric}\n" in done.stdout
    assert all(each["pid"] > 0 and each["hostname"] for each in told)
    assert [(each["rank"], each["node_state"]) for each in told] == [
        (None, "RUNNING"),
        (0, "RUNNING"),
        (0, "SUCCEEDED"),
    ]
