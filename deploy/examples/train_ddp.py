"""Train with PyTorch's DistributedDataParallel on the CPU (gloo), elastically.

    elasticrun --nproc-per-node=2 train_ddp.py --checkpoint-dir /tmp/checkpoints

The script is what one would write for torchrun. Each start joins the process group that the environment
describes, resumes from the newest checkpoint, and trains on. When a peer is lost, gloo raises; the script
lets it, and the launcher starts the group again. One thing in it knows of ``elastic``, and may be left out:
with ``--notice-timeout=30`` the launcher gives notice before it lets a new node in, and then not one step
is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import elastic.worker

SAMPLES = 96
FEATURES = 8
KEEP_CHECKPOINTS = 3


class Checkpoints:
    """Numbered files in one directory that all nodes share; the highest step is the newest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def newest_step(self) -> int:
        """The step of the newest checkpoint, 0 where there is none."""
        return max(
            (int(path.stem.removeprefix("step-")) for path in self._directory.glob("step-*.pt")), default=0
        )

    def load(self, step: int) -> dict[str, Any]:
        state: dict[str, Any] = torch.load(self._path(step), weights_only=True)
        return state

    def save(self, step: int, state: dict[str, Any]) -> None:
        final = self._path(step)
        partial = self._directory / f".partial-{socket.gethostname()}-{os.getpid()}"
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)  # atomic: a kill never leaves half a checkpoint
        for old in sorted(self._directory.glob("step-*.pt"))[:-KEEP_CHECKPOINTS]:
            old.unlink(missing_ok=True)

    def _path(self, step: int) -> Path:
        return self._directory / f"step-{step:09d}.pt"


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """A small linear regression, the same on every rank."""
    source = torch.Generator().manual_seed(7)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    truth = torch.randn(FEATURES, 1, generator=source)
    return inputs, inputs @ truth


def agreed_step(checkpoints: Checkpoints, rank: int) -> int:
    """The step to resume from: rank 0 looks and tells, so that all ranks read the same file."""
    step = torch.tensor([checkpoints.newest_step() if rank == 0 else 0])
    dist.broadcast(step, src=0)
    return int(step.item())


def train(options: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.5)
    checkpoints = Checkpoints(options.checkpoint_dir)
    step = agreed_step(checkpoints, rank)
    if step:
        state = checkpoints.load(step)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def save() -> None:
        checkpoints.save(step, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()})

    notice = elastic.worker.notice()
    inputs, targets = (tensor[rank::world] for tensor in samples())
    while step < options.steps:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        step += 1
        shared = torch.tensor([loss.item(), float(notice.pending)])
        dist.all_reduce(shared)
        total_loss, notices = shared.tolist()
        line = {
            "round": int(os.environ.get("ELASTIC_ROUND", "0")),
            "rank": rank,
            "world": world,
            "loss": total_loss / world,
            "step": step,
        }
        print(json.dumps(line) + "\n", end="", flush=True)  # one write: lines of workers stay whole
        if rank == 0 and (step % options.checkpoint_every == 0 or step == options.steps):
            save()
        if notices == world:  # only when all ranks have it, so that all do this after the same step
            if rank == 0:
                save()
            dist.barrier()  # whoever acknowledges may be stopped, and the others with it
            notice.acknowledge()
            notice.wait_for_end()
        time.sleep(options.step_seconds)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train with PyTorch DDP on the CPU, elastically.")
    parser.add_argument("--steps", type=int, default=50, help="steps to train in all, over every restart")
    parser.add_argument("--step-seconds", type=float, default=0.05, help="seconds to sleep after each step")
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="directory that all nodes share")
    parser.add_argument("--checkpoint-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument(
        "--peer-timeout", type=float, default=60.0, help="seconds until a silent peer is lost"
    )
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_options()
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.peer_timeout))
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
