"""Real training, by the examples that users copy: alone on one machine, and over nodes that come and go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import ROOT, Command
from support.etcd import EtcdServer
from support.job import Agent, Job, kill

EXAMPLES = [
    pytest.param("train_plain.py", id="plain"),
    pytest.param("train_ddp.py", id="torch", marks=pytest.mark.torch),
    pytest.param("train_tensorplay.py", id="tensorplay", marks=pytest.mark.tensorplay),
]
# The script and the rank that is lost: which one it is makes no difference to a framework.
LOSSES = [
    pytest.param("train_plain.py", 0, id="plain-0"),
    pytest.param("train_plain.py", 1, id="plain-1"),
    pytest.param("train_ddp.py", 0, id="torch-0", marks=pytest.mark.torch),
    pytest.param("train_tensorplay.py", 1, id="tensorplay-1", marks=pytest.mark.tensorplay),
]


def example(name: str) -> str:
    return str(ROOT / "deploy" / "examples" / name)


@pytest.mark.parametrize("script", EXAMPLES)
def test_training_on_one_machine(tmp_path: Path, script: str) -> None:
    with Command(tmp_path) as command:
        arguments = ("--steps=30", "--step-seconds=0", "--checkpoint-dir=checkpoints")
        done = command.run("--standalone", "--nproc-per-node=2", example(script), *arguments)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for rank in (0, 1):
        losses = [step["loss"] for step in steps if step["rank"] == rank]
        assert len(losses) == 30
        assert losses[-1] < 0.5 * losses[0]


@pytest.mark.timeout(400)  # a framework is loaded by every worker of every round
@pytest.mark.parametrize(("script", "lost_rank"), LOSSES)
def test_training_survives_a_lost_node_and_takes_in_a_new_one(
    etcd: EtcdServer, tmp_path: Path, script: str, lost_rank: int
) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:3", ttl=5) as job:
        steps = 500

        def start(name: str) -> Agent:
            return job.start(
                name,
                example(script),
                f"--steps={steps}",
                "--step-seconds=0.05",
                f"--checkpoint-dir={tmp_path / 'checkpoints'}",
                flags=("--max-restarts=0",),
            )

        agents = [start(name) for name in ("a", "b", "c")]
        first = max(agent.wait_for_world(3) for agent in agents)
        agents[0].wait_until(lambda a: [p for p in a.places() if p["step"] > 20], "training goes on")
        lost = next(agent for agent in agents if agent.places()[-1]["rank"] == lost_rank)
        survivors = [agent for agent in agents if agent is not lost]
        kill(lost, job)

        second = max(agent.wait_for_world(2, after_round=first) for agent in survivors)
        newcomer = start("d")
        everyone = [*survivors, newcomer]
        third = max(agent.wait_for_world(3, after_round=second) for agent in everyone)
        assert (second, third) == (first + 1, first + 2)
        assert [agent.wait() for agent in everyone] == [0, 0, 0]

        record = job.record("round")
        assert (record["round"], record["failures"]) == (third, 0), "no restart was spent"
        check_progress([step for agent in agents for step in agent.places()], rounds=[first, second, third])


def check_progress(places: list[dict[str, float]], *, rounds: list[int]) -> None:
    """Each round began at a checkpoint of the one before, and the loss went on falling."""
    by_round = {number: [p for p in places if p["round"] == number] for number in rounds}
    starts = [min(by_round[number], key=lambda p: p["step"]) for number in rounds]
    ends = [max(by_round[number], key=lambda p: p["step"]) for number in rounds]
    for before, start in zip(ends, starts[1:], strict=False):
        assert 1 < start["step"] <= before["step"] + 1, "it resumed from a checkpoint"
    losses = [end["loss"] for end in ends]
    assert losses == sorted(losses, reverse=True)
    very_first = min(places, key=lambda p: p["step"])  # of fewer nodes, where one of them started late
    assert losses[-1] < 0.1 * very_first["loss"]
