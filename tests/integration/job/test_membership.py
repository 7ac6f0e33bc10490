"""Agents come and go, and the job goes on: no worker failure, so no restart is spent."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import SLEEPER, Agent, Job, kill, wait_until

NO_RESTARTS = ("--max-restarts=0",)


def start(job: Job, *names: str) -> list[Agent]:
    script = job.script(SLEEPER)
    return [job.start(name, script, str(job.stop_file), flags=NO_RESTARTS) for name in names]


@pytest.mark.parametrize("lost_rank", [0, 1])
def test_a_node_is_lost_and_another_arrives(etcd: EtcdServer, tmp_path: Path, lost_rank: int) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="1:3", ttl=5) as job:
        agents = start(job, "a", "b", "c")
        first = max(agent.wait_for_world(3) for agent in agents)
        by_rank = {agent.places()[-1]["rank"]: agent for agent in agents}
        lost = by_rank.pop(lost_rank)
        survivors = [by_rank[rank] for rank in sorted(by_rank)]

        killed_at = kill(lost, job)
        second = {agent.wait_for_world(2, after_round=first) for agent in survivors}
        took = time.monotonic() - killed_at
        print(f"a lost node was replaced by a smaller world in {took:.2f} s; ttl is {job.ttl} s")
        assert second == {first + 1}
        assert took < 5 * job.ttl + 10
        # Survivors keep their order.
        assert [agent.places()[-1]["rank"] for agent in survivors] == [0, 1]

        [newcomer] = start(job, "d")
        third = {agent.wait_for_world(3, after_round=first + 1) for agent in [*survivors, newcomer]}
        assert third == {first + 2}
        assert [agent.places()[-1]["rank"] for agent in [*survivors, newcomer]] == [0, 1, 2]
        ports = {agent.places()[-1]["port"] for agent in [*survivors, newcomer]}
        assert len(ports) == 1

        job.finish()
        assert [agent.wait() for agent in [*survivors, newcomer]] == [0, 0, 0]
        restarts = {p["restarts"] for agent in job.agents for p in agent.places()}
        assert restarts == {0}
        assert job.record("closed")["outcome"] == "SUCCEEDED"


def test_leaving_is_known_at_once_and_closes_nothing(etcd: EtcdServer, tmp_path: Path) -> None:
    """Twenty times in a row: one of three agents is told to go, and another takes its place."""
    with Job(etcd.endpoint, tmp_path, nodes="1:3", ttl=30) as job:
        agents = start(job, "n0", "n1", "n2")
        number = max(agent.wait_for_world(3) for agent in agents)
        for turn in range(20):
            sign = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)[turn % 3]
            leaver = agents.pop(turn % 3)
            leaver.send(sign)
            assert leaver.wait() == 128 + sign
            assert leaver.name not in job.node_names(), "its key outlived it"
            assert "closed" not in job.key_names()
            assert "Traceback" not in leaver.text
            # The lease would have lived for half a minute: nobody waited for it.
            number = max(agent.wait_for_world(2, after_round=number) for agent in agents)
            agents += start(job, f"n{turn + 3}")
            number = max(agent.wait_for_world(3, after_round=number) for agent in agents)
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0, 0]


def test_a_spare_takes_over_and_ends_well(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2:2", ttl=5) as job:
        agents = start(job, "a", "b")
        first = max(agent.wait_for_world(2) for agent in agents)
        spare, late_spare = start(job, "spare", "late")
        # One that came after the end of the job would begin another.
        wait_until(lambda: {"spare", "late"} <= job.node_names(), "both spares are registered")
        kill(agents.pop(0), job)
        assert agents[0].wait_for_world(2, after_round=first) == first + 1
        job.finish()
        assert agents[0].wait() == 0
        assert sorted([spare.wait(), late_spare.wait()]) == [0, 0]
        assert sorted([bool(spare.places()), bool(late_spare.places())]) == [False, True]


def test_a_world_of_unequal_nodes(etcd: EtcdServer, tmp_path: Path) -> None:
    with Job(etcd.endpoint, tmp_path, nodes="2", ttl=60) as job:
        names = [
            *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"),
            *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "ROLE_NAME"),
            *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"),
            *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
            *("ELASTIC_RUN_ID", "ELASTIC_ROUND", "ELASTIC_NODE_ID"),
        ]
        script = job.script(
            f"import json, os\nplace = {{n: os.environ[n] for n in {names!r}}}\n"
            "print(json.dumps(place) + '\\n', end='', flush=True)\n"
        )
        three = job.start("three", script, flags=("--nproc-per-node=3", "--role=trainer"))
        one = job.start("one", script, flags=("--nproc-per-node=1", "--role=reader"))
        assert (three.wait(), one.wait()) == (0, 0)
        workers = sorted(three.places() + one.places(), key=lambda place: int(place["RANK"]))

        assert [w["RANK"] for w in workers] == ["0", "1", "2", "3"]
        assert {w["WORLD_SIZE"] for w in workers} == {"4"}
        assert {w["GROUP_WORLD_SIZE"] for w in workers} == {"2"}
        for name in ("MASTER_ADDR", "MASTER_PORT", "ELASTIC_ROUND", "ELASTIC_RUN_ID"):
            assert len({w[name] for w in workers}) == 1, name
        for agent, size, role in ((three, 3, "trainer"), (one, 1, "reader")):
            mine = sorted(agent.places(), key=lambda place: int(place["LOCAL_RANK"]))
            first = int(mine[0]["RANK"])
            assert [int(w["LOCAL_RANK"]) for w in mine] == list(range(size))
            assert [int(w["RANK"]) for w in mine] == list(range(first, first + size))
            assert [int(w["ROLE_RANK"]) for w in mine] == list(range(size))
            assert {w["ROLE_NAME"] for w in mine} == {role}
            assert {w["LOCAL_WORLD_SIZE"] for w in mine} == {str(size)}
            assert {w["ROLE_WORLD_SIZE"] for w in mine} == {str(size)}
            assert len({w["GROUP_RANK"] for w in mine}) == 1
            assert len({w["ELASTIC_NODE_ID"] for w in mine}) == 1
