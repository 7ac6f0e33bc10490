"""torchrun, as PyTorch ships it, on our rendezvous: nodes are lost, told to go and added; workers fail."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest
from support.etcd import EtcdServer, wait_until
from support.job import Agent
from support.torchrun import TorchrunJob, lose, wait_for_world

from elastic.etcd import Client

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # each agent and worker may load torch


TRAINING = """
import json, os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

checkpoint, stop = map(Path, sys.argv[1:])

def train():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(8, 4)
    model, done = torch.nn.Linear(4, 1), torch.zeros(1)
    if rank == 0 and checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        done += saved["step"]
    dist.broadcast(done, 0)
    model = DistributedDataParallel(model)  # its parameters are those of rank 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ending = torch.zeros(1)
    while not ending:
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done.add_(1)
        place = {"world": world, "step": int(done), "loss": loss.item()}
        print(json.dumps(place) + "\\n", end="", flush=True)
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "step": done}, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)
        ending.fill_(stop.exists())
        dist.all_reduce(ending)
        time.sleep(0.02)

try:
    train()
except RuntimeError:  # gloo raises at once when a peer is gone, also while they meet
    time.sleep(60)  # the agent stops this worker once it hears of that; to fail would spend a restart
    raise
dist.destroy_process_group()
"""
"""Trains, and saves each step in the file of its first argument, until that of its second is there.

It prints a step before it saves it: what was saved was printed by rank 0, wherever a signal stops it.
"""


def restarts(agent: Agent) -> int:
    return int(agent.places()[-1]["restarts"])


def test_nodes_come_and_go_and_no_restart_is_spent(etcd: EtcdServer, tmp_path: Path) -> None:
    with TorchrunJob(etcd.endpoint, tmp_path, nodes="1:3") as job:
        a, b, c = (job.start(name) for name in "abc")
        first = wait_for_world([a, b, c], 3)
        # Its workers notice nothing of the loss: the agents learn of it from the rendezvous alone.
        lose(b)
        second = wait_for_world([a, c], 2, not_port=first)
        d = job.start("d")
        third = wait_for_world([a, c, d], 3, not_port=second)
        d.send(signal.SIGTERM)
        # torchrun says no goodbye itself; the peers hear of one all the same, not only of the lost lease.
        wait_for_world([a, c], 2, not_port=third)
        assert [restarts(agent) for agent in (a, c)] == [0, 0]
        assert "d left" in a.text + c.text
        job.finish()
        assert [a.wait(), c.wait()] == [0, 0]


def test_a_failed_worker_restarts_all_and_the_last_failure_ends_all(etcd: EtcdServer, tmp_path: Path) -> None:
    with TorchrunJob(etcd.endpoint, tmp_path, nodes="1:2", ttl=20) as job:
        a, b = (job.start(name, restarts=1) for name in "ab")
        first = wait_for_world([a, b], 2)
        job.fail(1, 0)
        wait_for_world([a, b], 2, not_port=first)
        failing = next(agent for agent in (a, b) if agent.places()[-1]["rank"] == 1)
        assert restarts(failing) == 1
        job.fail(1, 1)
        assert [a.wait(), b.wait()] == [1, 1]
        peer = a if failing is b else b
        assert "RendezvousClosedError: the job has ended: failed, worker 1" in peer.text
        assert "failed with exit code 7" in peer.text


def test_a_spare_ends_well_with_the_job(etcd: EtcdServer, client: Client, tmp_path: Path) -> None:
    with TorchrunJob(etcd.endpoint, tmp_path, nodes="1:1", ttl=20) as job:
        nodes = f"/elastic/{job.run_id}/nodes/".encode()
        a = job.start("a")
        wait_for_world([a], 1)
        spare = job.start("spare")
        wait_until(lambda: b'"SPARE"' in b"".join(kv.value for kv in client.get_prefix(nodes).kvs))
        job.finish()
        assert [a.wait(), spare.wait()] == [0, 0]
        assert "nothing is left to do for this node: the job has ended: succeeded" in spare.text


def test_training_goes_on_over_a_lost_and_a_new_node(etcd: EtcdServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)

    def trained(agent: Agent, world: int) -> None:
        agent.wait_until(lambda a: [p for p in a.places()[-1:] if p["world"] == world], f"world {world}")

    with TorchrunJob(etcd.endpoint, tmp_path, nodes="1:3") as job:
        script = (str(tmp_path / "train.py"), str(tmp_path / "checkpoint"), str(job.stop_file))
        a, b, c = (job.start(name, *script) for name in "abc")
        for agent in (a, b, c):
            trained(agent, 3)
        lose(b)
        for agent in (a, c):
            trained(agent, 2)
        d = job.start("d", *script)
        for agent in (a, c, d):
            trained(agent, 3)
        job.finish()
        assert [agent.wait() for agent in (a, c, d)] == [0, 0, 0]
        steps = {place["step"] for agent in (a, b, c, d) for place in agent.places()}
        assert steps == set(range(1, max(steps) + 1)), "no step is missing"
        # A worker may be stopped between a step and its line, rank 0 between its line and the checkpoint.
        for before, after in itertools.pairwise(place["step"] for place in a.places()):
            assert before <= after <= before + 2, "it resumed from a checkpoint"
        losses = [place["loss"] for place in a.places()]
        assert losses[-1] < losses[0]
