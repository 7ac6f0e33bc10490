"""Train with tensorplay's gloo process group on the CPU, elastically.

    elasticrun --nproc-per-node=2 train_tensorplay.py --checkpoint-dir /tmp/checkpoints

Data parallel training by hand: every rank works on its share of the samples, and the gradients are
summed with ``all_reduce``. Each start joins the process group that the environment describes, resumes
from the newest checkpoint, and trains on. When a peer is lost, the collective raises; the script lets
it, and the launcher starts the group again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import tensorplay as tp
import tensorplay.distributed as dist
from tensorplay import nn, optim

SAMPLES = 96
FEATURES = 4
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
        state: dict[str, Any] = tp.load(self._path(step), weights_only=True)
        return state

    def save(self, step: int, state: dict[str, Any]) -> None:
        final = self._path(step)
        partial = self._directory / f".partial-{socket.gethostname()}-{os.getpid()}.pt"
        tp.save(state, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(final)  # atomic: a kill never leaves half a checkpoint
        for old in sorted(self._directory.glob("step-*.pt"))[:-KEEP_CHECKPOINTS]:
            old.unlink(missing_ok=True)

    def _path(self, step: int) -> Path:
        return self._directory / f"step-{step:09d}.pt"


def samples() -> tuple[list[list[float]], list[list[float]]]:
    """A small linear regression, the same on every rank."""
    source = random.Random(7)  # noqa: S311 - data, not secrets
    truth = [source.uniform(-2, 2) for _ in range(FEATURES)]
    inputs = [[source.uniform(-1, 1) for _ in range(FEATURES)] for _ in range(SAMPLES)]
    return inputs, [[sum(a * b for a, b in zip(x, truth, strict=True))] for x in inputs]


def agreed_step(checkpoints: Checkpoints, rank: int) -> int:
    """The step to resume from: rank 0 looks and tells, so that all ranks read the same file."""
    step = tp.tensor([float(checkpoints.newest_step() if rank == 0 else 0)])
    dist.broadcast(step, src=0)
    return int(step.item())


def train(options: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    tp.manual_seed(0)
    model = nn.Linear(FEATURES, 1)
    optimizer = optim.SGD(model.parameters(), lr=options.learning_rate)
    checkpoints = Checkpoints(options.checkpoint_dir)
    step = agreed_step(checkpoints, rank)
    if step:
        model.load_state_dict(checkpoints.load(step))

    inputs, targets = (tp.tensor(values[rank::world]) for values in samples())
    mean_squared_error = nn.MSELoss()
    while step < options.steps:
        optimizer.zero_grad()
        loss = mean_squared_error(model(inputs), targets)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        step += 1
        total_loss = tp.tensor([loss.item()])
        dist.all_reduce(total_loss)
        line = {
            "round": int(os.environ.get("ELASTIC_ROUND", "0")),
            "rank": rank,
            "world": world,
            "loss": total_loss.item() / world,
            "step": step,
        }
        print(json.dumps(line) + "\n", end="", flush=True)  # one write: lines of workers stay whole
        if rank == 0 and (step % options.checkpoint_every == 0 or step == options.steps):
            checkpoints.save(step, model.state_dict())
        time.sleep(options.step_seconds)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train with tensorplay's gloo group on the CPU, elastically."
    )
    parser.add_argument("--steps", type=int, default=50, help="steps to train in all, over every restart")
    parser.add_argument("--step-seconds", type=float, default=0.05, help="seconds to sleep after each step")
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="directory that all nodes share")
    parser.add_argument("--checkpoint-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--learning-rate", type=float, default=0.05)
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
