"""Static jobs from outside: torchrun's command lines with node ranks, on one machine."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.etcd import free_port
from support.job import FAILER, SLEEPER, Agent

HOST = "127.0.0.1"


class Nodes:
    """The agents of one static job, by node rank."""

    def __init__(self, directory: Path, *flags: str, count: int = 2) -> None:
        self.directory = directory
        self.count = count
        self.flags = flags
        self.stop_file = directory / "stop"
        self.agents: list[Agent] = []

    def start(self, rank: int, text: str = SLEEPER, *arguments: str, flags: tuple[str, ...] = ()) -> Agent:
        script = self.directory / "worker.py"
        script.write_text(text)
        argv = [
            *(f"--nnodes={self.count}", f"--node-rank={rank}", f"--master-addr={HOST}"),
            *("--shutdown-timeout=3", *self.flags, *flags),
            *(str(script), str(self.stop_file), *arguments),
        ]
        agent = Agent(f"rank{rank}", argv, directory=self.directory, env={"PYTHONFAULTHANDLER": "1"})
        self.agents.append(agent)
        return agent


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    made: list[Nodes] = []

    def make(*flags: str, count: int = 2) -> Nodes:
        made.append(Nodes(tmp_path, *flags, count=count))
        return made[-1]

    yield make
    for job in made:
        for agent in job.agents:
            agent.close()
            print(f"--- {agent.name}\n{agent.text}")


QUICK = "--rdzv-conf=ttl=2,close_timeout=5"


def test_nodes_have_the_ranks_that_they_were_given_and_workers_the_chosen_port(
    nodes: Callable[..., Nodes],
) -> None:
    port = free_port()
    job = nodes(f"--master-port={port}", QUICK, count=3)
    agents = [job.start(rank) for rank in (2, 1, 0)]  # in whatever order they come
    for agent in agents:
        agent.wait_for_world(3)
    job.stop_file.touch()
    assert [agent.wait() for agent in agents] == [0, 0, 0]
    (places,) = zip(*(agent.places() for agent in agents), strict=True)
    assert [place["rank"] for place in places] == [2, 1, 0]
    assert {place["port"] for place in places} == {port}


def test_a_failure_on_one_node_starts_all_anew_with_the_same_ranks(nodes: Callable[..., Nodes]) -> None:
    port = free_port()
    job = nodes(f"--master-port={port}", QUICK, "--max-restarts=1")
    agents = [job.start(rank, FAILER, "1", "5", "1") for rank in (0, 1)]
    for agent in agents:
        agent.wait_for_world(2, after_round=1)
    job.stop_file.touch()
    assert [agent.wait() for agent in agents] == [0, 0]
    for rank, agent in enumerate(agents):
        assert [(p["rank"], p["restarts"], p["port"]) for p in agent.places()] == [
            (rank, 0, port),
            (rank, 1, port),
        ]


def test_the_last_failure_ends_all_with_its_code(nodes: Callable[..., Nodes]) -> None:
    job = nodes(f"--master-port={free_port()}", QUICK)
    agents = [job.start(rank, FAILER, "0", "9", "1") for rank in (0, 1)]
    assert [agent.wait() for agent in agents] == [9, 9]


def test_a_lost_node_is_named_and_may_come_back(nodes: Callable[..., Nodes]) -> None:
    job = nodes(f"--master-port={free_port()}", QUICK)
    first, second = job.start(0), job.start(1)
    for agent in (first, second):
        agent.wait_for_world(2)
    second.send(signal.SIGKILL)
    second.wait()
    first.wait_for_line(r"regrouping: rank1@\S+ was lost")
    again = job.start(1)
    for agent in (first, again):
        agent.wait_for_world(2, after_round=1)
    job.stop_file.touch()
    assert [first.wait(), again.wait()] == [0, 0]
    assert [place["rank"] for place in again.places()] == [1]


@pytest.mark.slow
def test_a_node_that_stays_lost_ends_the_others_in_time_by_its_name(nodes: Callable[..., Nodes]) -> None:
    job = nodes(f"--master-port={free_port()}", QUICK, "--rdzv-timeout=10")
    first, second = job.start(0), job.start(1)
    for agent in (first, second):
        agent.wait_for_world(2)
    second.send(signal.SIGKILL)
    second.wait()
    assert first.wait() == 75
    assert "rank1@" in first.lines[-1]
    assert "was lost" in first.lines[-1]


@pytest.mark.slow
def test_without_node_rank_0_the_others_end(nodes: Callable[..., Nodes]) -> None:
    job = nodes(f"--master-port={free_port()}", f"{QUICK},failsafe_timeout=5")
    first, second = job.start(0), job.start(1)
    for agent in (first, second):
        agent.wait_for_world(2)
    first.send(signal.SIGKILL)
    assert second.wait() == 69
    assert "the store of node rank 0" in second.lines[-1]


def test_node_rank_0_ends_the_job_when_it_is_told_to_leave(nodes: Callable[..., Nodes]) -> None:
    job = nodes(f"--master-port={free_port()}", QUICK)
    first, second = job.start(0), job.start(1)
    for agent in (first, second):
        agent.wait_for_world(2)
    first.send(signal.SIGTERM)
    assert first.wait() == 143
    assert second.wait() == 1
    assert "rank0@" in second.lines[-1]
    assert "left: received SIGTERM" in second.lines[-1]


def test_who_is_missing_is_named_by_rank(nodes: Callable[..., Nodes]) -> None:
    job = nodes(f"--master-port={free_port()}", "--rdzv-timeout=5", count=3)
    first, alone = job.start(0), nodes(f"--master-port={free_port()}", "--rdzv-timeout=5", count=3).start(1)
    assert [first.wait(), alone.wait()] == [75, 75]
    assert first.lines[-1].endswith("node ranks that never came: 1, 2")
    assert "node rank 0 of 3 has not come" in alone.lines[-1]


def test_a_node_that_waits_for_node_rank_0_leaves_at_once_when_told(nodes: Callable[..., Nodes]) -> None:
    alone = nodes(f"--master-port={free_port()}").start(1)
    alone.wait_for_line("waiting for node rank 0")
    alone.send(signal.SIGTERM)
    assert alone.wait() == 143


def test_a_chosen_port_that_is_taken_is_one_sentence(nodes: Callable[..., Nodes]) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        first = nodes(f"--master-port={port}").start(0)
        assert first.wait() == 69
    assert f"cannot meet at {HOST}:{port}" in first.lines[-1]
    assert "choose another --master-port" in first.lines[-1]


def test_nodes_of_different_jobs_are_told_apart(nodes: Callable[..., Nodes]) -> None:
    job = nodes(f"--master-port={free_port()}", QUICK)
    first = job.start(0)
    second = job.start(1, flags=("--nnodes=3",))
    assert second.wait() == 76
    assert "job 'none' of 2 nodes" in second.lines[-1]
    assert "job 'none' of 3" in second.lines[-1]
    third = job.start(1)
    for agent in (first, third):
        agent.wait_for_world(2)
    job.stop_file.touch()
    assert [first.wait(), third.wait()] == [0, 0]


def test_a_name_that_resolves_nowhere_is_told_soon(nodes: Callable[..., Nodes]) -> None:
    flags = ("--master-addr=no-such-host.invalid", "--rdzv-conf=connect_timeout=1")
    for agent in [nodes().start(rank, flags=flags) for rank in (0, 1)]:
        assert agent.wait() == 69
        assert "no-such-host.invalid" in agent.lines[-1]
        assert "check --master-addr" in agent.lines[-1]
