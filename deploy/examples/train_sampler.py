"""Train over a dataset of which each sample is to be seen once in an epoch, whatever becomes of the world.

    elasticrun --nproc-per-node=2 train_sampler.py --checkpoint-dir /tmp/checkpoints

With PyTorch's DistributedDataParallel on the CPU (gloo), as in train_ddp.py. What is new here is the sampler:
its state is a part of each checkpoint, and whoever resumes, in a world of another size or not, goes on with
the samples that the job has not trained on. What was trained after the newest checkpoint is lost with the
model's state, and drawn again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from elastic.utils.data import ElasticDistributedSampler

FEATURES = 8


class Samples(Dataset[Any]):  # type: ignore[misc, unused-ignore] # torch's types may not be there
    """A small linear regression, the same on every rank. Each sample comes with its index."""

    def __init__(self, length: int) -> None:
        source = torch.Generator().manual_seed(7)
        self._inputs = torch.randn(length, FEATURES, generator=source)
        self._targets = self._inputs @ torch.randn(FEATURES, 1, generator=source)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return index, self._inputs[index], self._targets[index]


def load(path: Path, rank: int) -> dict[str, Any] | None:
    """The checkpoint, if there is one: rank 0 reads it and tells the others, so that all have the same."""
    states = [torch.load(path, weights_only=True) if rank == 0 and path.exists() else None]
    dist.broadcast_object_list(states, src=0)
    return states[0]


def save(path: Path, state: dict[str, Any]) -> None:
    partial = path.with_suffix(f".partial-{os.getpid()}")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)  # atomic: a kill never leaves half a checkpoint


def train(options: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataset = Samples(options.samples)
    sampler = ElasticDistributedSampler(dataset)  # of this process group's size and rank
    loader = DataLoader(dataset, options.batch_size, sampler=sampler)

    options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    path = options.checkpoint_dir / "newest.pt"
    state = load(path, rank)
    if state is not None:
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        sampler.load_state_dict(state["sampler"])

    for epoch in range(sampler.epoch, options.epochs):
        sampler.set_epoch(epoch)  # where the checkpoint is of this epoch, it stays at its place in it
        for indices, inputs, targets in loader:
            line = {
                "round": int(os.environ.get("ELASTIC_ROUND", "0")),
                "rank": rank,
                "world": world,
                "epoch": epoch,
                "consumed": sampler.consumed,
                "samples": indices.tolist(),
            }
            print(json.dumps(line) + "\n", end="", flush=True)  # one write: lines of workers stay whole
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()  # here the ranks wait for each other
            optimizer.step()
            sampler.advance(len(indices))  # only now: the loader may have drawn far ahead of this
            if rank == 0:
                save(
                    path,
                    {
                        "model": model.module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "sampler": sampler.state_dict(),
                    },
                )
            time.sleep(options.step_seconds)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="See each sample once an epoch, in worlds of any size.")
    parser.add_argument("--samples", type=int, default=1000, help="how many there are")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8, help="samples of one rank in a step")
    parser.add_argument("--step-seconds", type=float, default=0.05, help="seconds to sleep after each step")
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="directory that all nodes share")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_options()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
