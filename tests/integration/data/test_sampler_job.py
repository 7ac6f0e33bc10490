"""The sampler in real jobs: over nodes that come and go in the middle of an epoch, and in each framework."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.command import ROOT, Command
from support.etcd import EtcdServer
from support.job import Agent, Job, kill

from elastic.utils.data import ElasticDistributedSampler

SCRIPT = str(ROOT / "deploy" / "examples" / "train_sampler.py")
SAMPLES = 751
BATCH = 2


@pytest.mark.torch
@pytest.mark.timeout(300)  # torch is loaded by every worker of every round
def test_each_sample_is_seen_once_in_worlds_of_four_two_and_three(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:3", ttl=3) as job:

        def start(name: str, workers: int) -> Agent:
            checkpoints = f"--checkpoint-dir={tmp_path / 'checkpoints'}"
            options = (f"--samples={SAMPLES}", f"--batch-size={BATCH}", "--epochs=1", "--step-seconds=0.1")
            flags = (f"--nproc-per-node={workers}", "--max-restarts=0")
            return job.start(name, SCRIPT, checkpoints, *options, flags=flags)

        pairs = [start("a", 2), start("b", 2)]
        four = max(agent.wait_for_world(4) for agent in pairs)
        for agent in pairs:
            agent.wait_until(lambda a: [p["round"] for p in a.places()].count(four) > 10, "training goes on")
        lost = next(
            agent for agent in pairs if any(p["rank"] == 0 for p in agent.places() if p["round"] == four)
        )
        kill(lost, job)  # with rank 0, in the middle of whatever it does
        (survivor,) = (agent for agent in pairs if agent is not lost)
        two = survivor.wait_for_world(2, after_round=four)
        survivor.wait_until(lambda a: [p["round"] for p in a.places()].count(two) > 10, "it goes on")
        single = start("c", 1)
        three = max(agent.wait_for_world(3, after_round=two) for agent in (survivor, single))
        assert [survivor.wait(), single.wait()] == [0, 0]
        lines = [line for agent in job.agents for line in agent.places()]
        check_epoch(lines, rounds=[four, two, three])


def check_epoch(lines: list[dict[str, Any]], *, rounds: list[int]) -> None:
    """A step counts if the next round began behind it; what counts is the epoch, each sample once.

    Besides these rounds there may be others: a node that starts late finds another at work alone.
    """
    worlds = dict(sorted((line["round"], line["world"]) for line in lines))
    began = {number: min(line["consumed"] for line in lines if line["round"] == number) for number in worlds}
    starts = list(began.values())
    assert [worlds[number] for number in rounds] == [4, 2, 3]
    assert began[rounds[0]] < began[rounds[1]] < began[rounds[2]], (
        "each went on from a checkpoint in the epoch"
    )
    assert starts == sorted(starts)
    assert starts[0] == 0
    order = list(ElasticDistributedSampler(range(SAMPLES), 1, 0))
    trained: list[int] = []
    for (number, size), until in zip(worlds.items(), [*starts[1:], SAMPLES], strict=True):
        counted = [line for line in lines if line["round"] == number and line["consumed"] < until]
        for _, step in itertools.groupby(
            sorted(counted, key=lambda line: (line["consumed"], line["rank"])), lambda line: line["consumed"]
        ):
            ranks = list(step)
            assert [line["rank"] for line in ranks] == list(range(size)), "every rank made the step"
            trained += [sample for line in ranks for sample in line["samples"]]
    padding = -(SAMPLES - starts[-1]) % list(worlds.values())[-1]
    assert Counter(trained) == Counter(order) + Counter(order[:padding])


FRAMEWORK = """
import os
import {module}.distributed as dist
from elastic.utils.data import ElasticDistributedSampler

dist.init_process_group("gloo")
del os.environ["RANK"], os.environ["WORLD_SIZE"]
share = list(ElasticDistributedSampler(range(7), shuffle=False, tail="uneven"))
print(f"{{share}}\\n", end="", flush=True)  # one write: a line stays whole
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "module",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorplay", marks=pytest.mark.tensorplay),
    ],
)
def test_the_world_is_that_of_the_process_group(tmp_path: Path, module: str) -> None:
    with Command(tmp_path) as command:
        script = command.script(FRAMEWORK.format(module=module))
        done = command.run("--standalone", "--nproc-per-node=2", script)
    assert done.returncode == 0, done.stderr
    assert sorted(map(json.loads, done.stdout.splitlines())) == [[0, 2, 4, 6], [1, 3, 5]]


def test_without_a_process_group_it_is_that_of_the_environment(tmp_path: Path) -> None:
    with Command(tmp_path) as command:
        script = command.script(
            "from elastic.utils.data import ElasticDistributedSampler\n"
            "share = list(ElasticDistributedSampler(range(7), shuffle=False, tail='uneven'))\n"
            "print(f'{share}\\n', end='', flush=True)\n"
        )
        done = command.run("--nproc-per-node=2", script)
    assert done.returncode == 0, done.stderr
    assert sorted(map(json.loads, done.stdout.splitlines())) == [[0, 2, 4, 6], [1, 3, 5]]
