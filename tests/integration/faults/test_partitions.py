"""Nodes are cut off, or stand still, while the others go on: one world makes rounds, and nobody mixes two."""

from __future__ import annotations

import json
import queue
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.etcd import EtcdServer
from support.job import Agent, Job
from support.relay import Relay

from elastic.etcd import Client, WatchBatch, prefix

TTL = 4


class History:
    """Every record that a node wrote, in the order of etcd's revisions."""

    def __init__(self, client: Client, job: Job) -> None:
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        keys = prefix(f"/elastic/{job.run_id}/".encode())
        revision = client.get_prefix(keys.start).revision
        self._watch = client.watch([keys], into=self._news, start_revision=revision + 1)

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """Key and record of each write so far; closes the watch."""
        self._watch.close()
        found = []
        while not self._news.empty():
            batch = self._news.get()
            if isinstance(batch, WatchBatch):
                found += [(e.kv.key.decode(), json.loads(e.kv.value)) for e in batch.events if not e.deleted]
        return [(key.split("/", 3)[3], record) for key, record in found]


def check_rounds(job: Job, records: list[tuple[str, dict[str, Any]]]) -> None:
    """At any time one world: rounds were formed one after the other, and no number twice."""
    formed = [record for key, record in records if key == "round" and record["phase"] == "FORMED"]
    worlds = {record["round"]: [member["nodeId"] for member in record["world"]] for record in formed}
    numbers = [record["round"] for record in formed]
    assert numbers == sorted(numbers)
    for record in formed:
        assert worlds[record["round"]] == [member["nodeId"] for member in record["world"]]
    for start in job.diary.starts():
        assert worlds[start.round][start.rank] == start.node, f"{start} is not what was committed"
    job.diary.check()


def check_stopped_before_joining(job: Job, records: list[tuple[str, dict[str, Any]]], agent: Agent) -> None:
    """The workers of the agent's old round had ended before it said that it joins a newer one.

    They linger for a second, so that saying it too early would show.
    """
    old, new, *_ = job.diary.starts(agent.name)
    end = job.diary.end_of(old)
    assert end is not None, "the workers of the old round were not stopped"
    assert end.at <= new.at
    rejoined = [
        record
        for key, record in records
        if key == f"nodes/{old.node}"
        and record["want"] in ("JOINING", "WAITING", "SPARE")
        and record["round"] > old.round
    ]
    assert rejoined, "it never said that it joins"
    early = end.wall - datetime.fromisoformat(rejoined[0]["writtenAt"]).timestamp()
    assert early < 0.01, f"it joined {early:.2f} s before its workers had ended"


@pytest.mark.parametrize("how", ["pause", "refuse"])
def test_two_of_four_are_cut_off(etcd: EtcdServer, tmp_path: Path, how: str) -> None:
    with (
        Relay(("127.0.0.1", etcd.port)) as relay,
        Client([etcd.endpoint]) as client,
        Job(etcd.endpoint, tmp_path, nodes="2:4", ttl=TTL, last_call=60) as job,
    ):
        history = History(client, job)
        near = [job.start_diarist(name) for name in ("a", "b")]
        far = [job.start_diarist(name, endpoint=relay.endpoint, linger=1.0) for name in ("c", "d")]
        agents = [*near, *far]
        first = max(agent.wait_for_world(4) for agent in agents)
        getattr(relay, how)()
        assert {agent.wait_for_world(2, after_round=first) for agent in near} == {first + 1}
        time.sleep(TTL)
        for agent in far:
            [start] = job.diary.starts(agent.name)
            assert job.diary.end_of(start) is None, "what is cut off runs on, and forms no world"
        relay.heal()
        healed_at = time.monotonic()
        last = {agent.wait_for_world(4, after_round=first) for agent in agents}
        print(f"one world of four {time.monotonic() - healed_at:.1f} s after the cut was healed")
        assert len(last) == 1
        job.finish()
        assert [agent.wait() for agent in agents] == [0] * 4
        records = history.records()
        check_rounds(job, records)
        for agent in far:
            check_stopped_before_joining(job, records, agent)


@pytest.mark.parametrize("stopped", ["leader", "member"])
def test_an_agent_that_stood_still_stops_its_workers_first(
    etcd: EtcdServer, tmp_path: Path, stopped: str
) -> None:
    with (
        Client([etcd.endpoint]) as client,
        Job(etcd.endpoint, tmp_path, nodes="2:3", ttl=TTL, last_call=60) as job,
    ):
        history = History(client, job)
        agents = [job.start_diarist(name, linger=1.0) for name in ("a", "b", "c")]
        first = max(agent.wait_for_world(3) for agent in agents)
        leads = job.record("leader")["nodeId"].rpartition("-")[0]
        slept = next(agent for agent in agents if (agent.name == leads) == (stopped == "leader"))
        others = [agent for agent in agents if agent is not slept]
        slept.send(signal.SIGSTOP)
        stopped_at = time.monotonic()
        second = {agent.wait_for_world(2, after_round=first) for agent in others}
        print(f"the others went on {time.monotonic() - stopped_at:.1f} s after one stood still; ttl {TTL} s")
        assert second == {first + 1}
        time.sleep(max(0.0, stopped_at + 3 * TTL - time.monotonic()))
        assert job.diary.end_of(job.diary.starts(slept.name)[-1]) is None, "its workers ran on"
        slept.send(signal.SIGCONT)
        last = {agent.wait_for_world(3, after_round=first + 1) for agent in agents}
        assert len(last) == 1
        job.finish()
        assert [agent.wait() for agent in agents] == [0] * 3
        records = history.records()
        check_rounds(job, records)
        check_stopped_before_joining(job, records, slept)
