"""Many machines are lost at once: one new round, although none of the workers that are left has noticed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import Job, kill

SIZE = 6


@pytest.mark.parametrize("with_leader", [False, True])
def test_many_losses_are_one_change(etcd: EtcdServer, tmp_path: Path, with_leader: bool) -> None:
    with Job(etcd.endpoint, tmp_path, nodes=f"1:{SIZE}", ttl=5, last_call=60) as job:
        agents = [job.start_diarist(f"n{number}") for number in range(SIZE)]
        first = max(agent.wait_for_world(SIZE) for agent in agents)
        leads = job.record("leader")["nodeId"].rpartition("-")[0]
        agents.sort(key=lambda agent: (agent.name == leads) == with_leader)
        left, lost = agents[:2], agents[2:]
        lost_at = max(kill(agent, job) for agent in lost)
        second = {agent.wait_for_world(len(left), after_round=first) for agent in left}
        print(f"one new round {time.monotonic() - lost_at:.1f} s after the last loss; ttl is {job.ttl} s")
        assert second == {first + 1}, "the losses came one by one"
        job.finish()
        assert [agent.wait() for agent in left] == [0, 0]
        assert [len(job.diary.starts(agent.name)) for agent in left] == [2, 2]
        assert job.record("round")["failures"] == 0
        job.diary.check()
