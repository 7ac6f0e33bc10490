"""Leases that end wrongly restart nobody; those that live too long do so for a bounded time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import Job, kill, wait_until

from elastic.etcd import Client

MakeServer = Callable[..., EtcdServer]


def leases(client: Client, job: Job) -> dict[str, int]:
    """The leases of the nodes' records, by the name of the node."""
    prefix = f"/elastic/{job.run_id}/nodes/".encode()
    kvs = client.get_prefix(prefix).kvs
    return {kv.key.removeprefix(prefix).decode().rpartition("-")[0]: kv.lease for kv in kvs}


@pytest.mark.parametrize("everybody", [False, True], ids=["one", "all"])
def test_a_revoked_lease_is_replaced_at_once(each_etcd: EtcdServer, tmp_path: Path, everybody: bool) -> None:
    # A lease that were waited for would take half a minute.
    with Job(each_etcd.endpoint, tmp_path, nodes="3", ttl=30) as job, Client([each_etcd.endpoint]) as client:
        # The grace after which a member is missed is long enough for a slow machine.
        agents = [job.start_diarist(name, conf="rejoin_grace=3") for name in ("a", "b", "c")]
        for agent in agents:
            agent.wait_for_world(3)
        before = leases(client, job)
        victims = set(before) if everybody else {"b"}
        for name in victims:
            each_etcd.ctl("lease", "revoke", f"{before[name]:x}")

        def replaced() -> bool:
            now = leases(client, job)
            return set(now) == set(before) and not any(now[name] == before[name] for name in victims)

        took = wait_until(replaced, "the records are back")
        for agent in agents:
            if agent.name in victims:
                agent.wait_for_line("registering again")
        print(f"{len(victims)} revoked leases were replaced in {took:.2f} s")
        time.sleep(3.5)  # longer than that grace
        assert len(job.diary.starts()) == 3, "workers were started anew"
        for agent in agents:
            # The victims know it by etcd's word, so it is not that etcd is away.
            told = "WARNING elastic.rendezvous" in agent.text and "registering again" in agent.text
            assert told == (agent.name in victims), agent.text
            assert "etcd is away" not in agent.text
        assert job.record("round")["round"] == job.diary.starts()[0].round
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0, 0]


def test_a_lost_node_is_removed_although_etcd_restarts_all_the_time(
    etcd_server: MakeServer, tmp_path: Path
) -> None:
    """etcd counts each lease anew after a restart. So the bound runs from the last of them."""
    server = etcd_server()
    with Job(server.endpoint, tmp_path, nodes="1:3", ttl=4) as job:
        agents = [job.start_diarist(name) for name in ("a", "b", "c")]
        first = max(agent.wait_for_world(3) for agent in agents)
        kill(agents.pop(1), job)
        for _ in range(4):
            time.sleep(job.ttl / 2)
            server.kill()
            server.start().wait_ready()
        restarted_at = time.monotonic()
        assert {agent.wait_for_world(2, after_round=first) for agent in agents} == {first + 1}
        took = time.monotonic() - restarted_at
        print(f"the lost node was removed {took:.1f} s after the last restart of etcd; ttl is {job.ttl} s")
        # The lease, the grace after an outage, that of a member; and a slow machine.
        assert took < job.ttl + 5 + 1 + 15
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0]
        job.diary.check()


def test_an_operator_need_not_wait_for_a_lease(etcd: EtcdServer, tmp_path: Path) -> None:
    """Deleting a dead node's record removes it now, however long its lease would live on."""
    with Job(etcd.endpoint, tmp_path, nodes="1:3", ttl=600) as job:
        agents = [job.start_diarist(name) for name in ("a", "b", "c")]
        first = max(agent.wait_for_world(3) for agent in agents)
        lost = agents.pop(1)
        node_id = job.diary.starts(lost.name)[0].node
        lost.send(signal.SIGKILL)
        led = job.record("leader")["nodeId"] == node_id  # nobody else can lead yet
        etcd.ctl("del", f"/elastic/{job.run_id}/nodes/{node_id}")
        if led:
            etcd.ctl("del", f"/elastic/{job.run_id}/leader")
        assert {agent.wait_for_world(2, after_round=first) for agent in agents} == {first + 1}
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0]
