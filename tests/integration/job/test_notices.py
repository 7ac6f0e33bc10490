"""Notice before a newcomer is let in, or a node drained: a job that acknowledges it loses no step."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from support.command import ROOT
from support.etcd import EtcdServer
from support.job import SLEEPER, Agent, Job

SCRIPTS = [
    pytest.param("train_plain.py", id="plain"),
    pytest.param("train_ddp.py", id="torch", marks=pytest.mark.torch),
]


def steps_of(number: int) -> Callable[[Agent], bool]:
    """Whether an agent's workers have done some steps of that round."""
    return lambda agent: sum(place["round"] == number for place in agent.places()) > 5


@pytest.mark.timeout(400)  # a framework is loaded by every worker of every round
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_step_is_lost_over_five_scale_ups(etcd: EtcdServer, tmp_path: Path, script: str) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:6", ttl=20) as job:

        def start(name: str) -> Agent:
            return job.start(
                name,
                str(ROOT / "deploy" / "examples" / script),
                "--steps=1000000",
                "--step-seconds=0.02",
                "--checkpoint-every=1000000",  # nothing but a notice saves
                f"--checkpoint-dir={tmp_path / 'checkpoints'}",
                flags=("--max-restarts=0", "--notice-timeout=60", "--shutdown-timeout=20"),
            )

        agents = [start("n1")]
        number = agents[0].wait_for_world(1)
        for size in range(2, 7):
            agents[0].wait_until(steps_of(number), "training goes on")
            agents.append(start(f"n{size}"))
            number = max(agent.wait_for_world(size, after_round=number) for agent in agents)
        for agent in agents:
            agent.send(signal.SIGTERM)
        for agent in agents:
            assert agent.wait() == 143

        places = [place for agent in agents for place in agent.places()]
        rounds = sorted({place["round"] for place in places})
        assert len(rounds) >= 6
        spans = [[p["step"] for p in places if p["round"] == each] for each in rounds[:6]]
        for before, after in pairwise(spans):
            assert min(after) == max(before) + 1, "it went on where it was"
        assert job.record("round")["failures"] == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_step_is_lost_when_a_node_is_drained(etcd: EtcdServer, tmp_path: Path, script: str) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2:3", ttl=20) as job:
        agents = [
            job.start(
                name,
                str(ROOT / "deploy" / "examples" / script),
                "--steps=1000000",
                "--step-seconds=0.02",
                "--checkpoint-every=1000000",
                f"--checkpoint-dir={tmp_path / 'checkpoints'}",
                flags=("--max-restarts=0", "--notice-timeout=60", "--shutdown-timeout=20"),
            )
            for name in ("n1", "n2", "n3")
        ]
        number = max(agent.wait_for_world(3) for agent in agents)
        agents[0].wait_until(steps_of(number), "training goes on")
        agents[0].send(signal.SIGTERM)  # the node of rank 0, or another one
        assert agents[0].wait() == 143
        stayed = agents[1:]
        later = max(agent.wait_for_world(2, after_round=number) for agent in stayed)
        stayed[0].wait_until(steps_of(later), "training goes on")
        places = [place for agent in agents for place in agent.places()]
        last = max(place["step"] for place in places if place["round"] == number)
        assert min(place["step"] for place in places if place["round"] == later) == last + 1
        assert all("1 leaving: workers have 60 s to save" in agent.text for agent in stayed)
        assert job.record("round")["failures"] == 0


def test_a_second_order_does_not_wait_for_workers_to_save(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:1") as job:
        agent = job.start("a", job.script(SLEEPER), str(job.stop_file), flags=("--notice-timeout=300",))
        agent.wait_for_world(1)
        agent.send(signal.SIGTERM)
        agent.wait_until(lambda agent: "workers have 300 s to save" in agent.text, "the notice")
        agent.send(signal.SIGTERM)
        assert agent.wait() == 143


def test_who_never_answers_is_stopped_at_the_deadline(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:2", ttl=60) as job:
        script = job.script(SLEEPER)
        flags = ("--notice-timeout=1", "--max-restarts=0")
        first = job.start("a", script, str(job.stop_file), flags=flags)
        number = first.wait_for_world(1)
        second = job.start("b", script, str(job.stop_file), flags=flags)
        assert first.wait_for_world(2, after_round=number) == number + 1
        assert "workers have 1 s to save" in first.text
        job.finish()
        assert [first.wait(), second.wait()] == [0, 0]


SHELL = """
trap 'echo told by signal; told=yes' USR1
echo "{\\"world\\": $WORLD_SIZE, \\"round\\": $ELASTIC_ROUND}"
while [ ! -e "$1" ]; do
    if [ -e "$ELASTIC_NOTICE_FILE" ] && [ "$told" ]; then
        echo saved
        basename "$ELASTIC_NOTICE_FILE" > "$ELASTIC_NOTICE_ACKNOWLEDGE"
        exit 7  # whatever comes after the acknowledgement is no failure
    fi
    sleep 0.05
done
"""


def test_a_shell_script_takes_part(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:2", ttl=60) as job:
        script = job.script(SHELL, "worker.sh")
        flags = ("--no-python", "--nproc-per-node=2", "--notice-timeout=300", "--notice-signal=SIGUSR1")
        first = job.start("a", "sh", script, str(job.stop_file), flags=flags)
        # A shell that has not got to its trap would die of the signal.
        first.wait_until(lambda agent: len(agent.places()) == 2, "both workers run")
        second = job.start("b", "sh", script, str(job.stop_file), flags=flags)
        for agent in (first, second):
            agent.wait_for_world(4)
        assert first.text.count("saved") == 2
        assert first.text.count("told by signal") == 2
        job.finish()
        assert [first.wait(), second.wait()] == [0, 0]
        assert job.record("round")["failures"] == 0
