"""Train a small model in plain Python: the least that a worker owes an elastic launcher.

    elasticrun --nproc-per-node=2 train_plain.py --checkpoint-dir /tmp/checkpoints

Standard library only, as is ``elastic.worker``. It shows what makes a script elastic, the first five always:

1. Its place in the world comes from the environment, new at every start.
2. Any start may be a restart: it resumes from the newest checkpoint.
3. Rank 0 alone writes checkpoints, each by an atomic rename, so a kill never leaves half of one.
4. A lost peer makes it crash. It repairs nothing itself: the launcher starts the group again.
5. On SIGTERM it saves the last complete step and ends.
6. It loses no step when a node is let in: with ``--notice-timeout=30`` the launcher gives notice first.

The gradient is summed over all workers through rank 0, so the result does not depend on how many
workers there are, nor on when they came and went. Like other collective libraries it trusts its
network: whoever reaches the master port can take part.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import elastic.worker

if TYPE_CHECKING:
    from collections.abc import Mapping

PEER_TIMEOUT = 60.0  # seconds to wait for a peer before taking it for lost
KEEP_CHECKPOINTS = 3
TRUTH = (3.0, -2.0, 0.5)  # what training should find


@dataclass(frozen=True, slots=True)
class Place:
    """Where the launcher put this worker."""

    rank: int
    world: int
    master: tuple[str, int]
    round: int
    restarts: int

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Place:
        return cls(
            rank=int(environ["RANK"]),
            world=int(environ["WORLD_SIZE"]),
            master=(environ["MASTER_ADDR"], int(environ["MASTER_PORT"])),
            round=int(environ.get("ELASTIC_ROUND", "0")),
            restarts=int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )


@dataclass(frozen=True, slots=True)
class State:
    """All that a restart needs: the steps done, and the weights after them."""

    step: int
    weights: tuple[float, ...]


class Checkpoints:
    """Numbered files in one directory that all nodes share; the highest step is the newest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def load(self) -> State:
        newest = max(self._directory.glob("step-*.json"), default=None)
        if newest is None:
            return State(step=0, weights=(0.0,) * len(TRUTH))
        record = json.loads(newest.read_text())
        return State(step=record["step"], weights=tuple(record["weights"]))

    def save(self, state: State) -> None:
        final = self._directory / f"step-{state.step:09d}.json"
        partial = self._directory / f".partial-{socket.gethostname()}-{os.getpid()}"
        with partial.open("w") as file:
            json.dump({"step": state.step, "weights": state.weights}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)
        for old in sorted(self._directory.glob("step-*.json"))[:-KEEP_CHECKPOINTS]:
            old.unlink(missing_ok=True)


class Group:
    """The workers of one world, joined in a star around rank 0.

    Every call is collective: all ranks make it, in the same order. A peer that is gone raises OSError.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stack = ExitStack()
        self._peers: dict[int, TextIO] = {}
        if place.rank == 0:
            self._accept_peers()
        else:
            self._join_master()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def broadcast(self, state: State) -> State:
        """Return rank 0's state on every rank."""
        if self._place.rank == 0:
            self._send_all([state.step, *state.weights])
            return state
        step, *weights = self._receive(0)
        return State(step=int(step), weights=tuple(weights))

    def sum(self, vector: list[float]) -> list[float]:
        """Return the sum of all ranks' vectors, the same on every rank."""
        if self._place.rank != 0:
            self._send(0, vector)
            return self._receive(0)
        vectors = [vector, *(self._receive(peer) for peer in sorted(self._peers))]
        total = [sum(column) for column in zip(*vectors, strict=True)]
        self._send_all(total)
        return total

    def _accept_peers(self) -> None:
        dual_stack = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual_stack else socket.AF_INET
        with socket.create_server(
            ("", self._place.master[1]), family=family, dualstack_ipv6=dual_stack
        ) as server:
            server.settimeout(PEER_TIMEOUT)
            while len(self._peers) < self._place.world - 1:
                connection, _ = server.accept()
                stream = self._stream(connection)
                peer = self._greeting(stream)
                if peer is None:
                    stream.close()
                else:
                    self._peers[peer] = stream

    def _greeting(self, stream: TextIO) -> int | None:
        """The rank that a newcomer names; None for a worker of another round, or a stranger."""
        try:
            hello = json.loads(stream.readline())
            return int(hello["rank"]) if hello["round"] == self._place.round else None
        except (ValueError, KeyError, TypeError):
            return None

    def _join_master(self) -> None:
        self._peers[0] = self._stream(self._dial(time.monotonic() + PEER_TIMEOUT))
        self._peers[0].write(json.dumps({"rank": self._place.rank, "round": self._place.round}) + "\n")
        self._peers[0].flush()

    def _dial(self, deadline: float) -> socket.socket:
        while True:
            try:
                return socket.create_connection(self._place.master, timeout=PEER_TIMEOUT)
            except ConnectionRefusedError:  # rank 0 may not listen yet
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _stream(self, connection: socket.socket) -> TextIO:
        self._stack.enter_context(connection)
        connection.settimeout(PEER_TIMEOUT)
        return self._stack.enter_context(connection.makefile("rw"))

    def _send(self, peer: int, vector: list[float]) -> None:
        self._peers[peer].write(json.dumps(vector) + "\n")
        self._peers[peer].flush()

    def _send_all(self, vector: list[float]) -> None:
        for peer in self._peers:
            self._send(peer, vector)

    def _receive(self, peer: int) -> list[float]:
        line = self._peers[peer].readline()
        if not line.endswith("\n"):
            raise ConnectionResetError(f"rank {peer} is gone")
        vector: list[float] = json.loads(line)
        return vector


def samples(count: int = 96) -> list[tuple[tuple[float, ...], float]]:
    """The whole data set: inputs with a constant last term, and what TRUTH makes of them."""
    source = random.Random(7)  # noqa: S311 - data, not secrets
    inputs = [(source.uniform(-1, 1), source.uniform(-1, 1), 1.0) for _ in range(count)]
    return [(x, sum(a * b for a, b in zip(x, TRUTH, strict=True))) for x in inputs]


def local_gradient(state: State, place: Place) -> list[float]:
    """Sums over this rank's share of the samples: the gradient, then the squared error and the count."""
    totals = [0.0] * (len(TRUTH) + 2)
    for x, y in samples()[place.rank :: place.world]:
        error = sum(a * b for a, b in zip(x, state.weights, strict=True)) - y
        for i, value in enumerate(x):
            totals[i] += 2 * error * value
        totals[-2] += error * error
        totals[-1] += 1
    return totals


def train_step(state: State, group: Group, place: Place, *, learning_rate: float) -> tuple[State, float]:
    """One step of gradient descent over all ranks' samples: the new state, and the loss before it."""
    *gradient, squared_error, count = group.sum(local_gradient(state, place))
    weights = tuple(w - learning_rate * g / count for w, g in zip(state.weights, gradient, strict=True))
    return State(step=state.step + 1, weights=weights), squared_error / count


def fails_now(options: argparse.Namespace, place: Place, step: int) -> bool:
    """Whether this worker was told to fail instead of doing this step."""
    return (options.fail_at_step, options.fail_rank) == (step, place.rank) and (
        place.restarts < options.fail_times
    )


def terminate(signum: int, _frame: object) -> NoReturn:
    signal.signal(signum, signal.SIG_IGN)  # once: a second one must not cut the last save short
    sys.exit(128 + signum)


def run(options: argparse.Namespace, place: Place) -> None:
    checkpoints = Checkpoints(options.checkpoint_dir)
    state = checkpoints.load()
    notice = elastic.worker.notice()
    with ExitStack() as stack:
        group = None
        if not options.sleep_only:
            group = stack.enter_context(Group(place))
            state = group.broadcast(state)  # all go on from the one state that rank 0 read
        signal.signal(signal.SIGTERM, terminate)
        try:
            while state.step < options.steps:
                if fails_now(options, place, state.step + 1):
                    sys.exit(options.fail_code)
                time.sleep(options.step_seconds)
                line: dict[str, float] = {"round": place.round, "rank": place.rank, "world": place.world}
                if group is None:
                    state = State(step=state.step + 1, weights=state.weights)
                else:
                    state, line["loss"] = train_step(state, group, place, learning_rate=options.learning_rate)
                line["step"] = state.step
                print(json.dumps(line) + "\n", end="", flush=True)  # one write: lines of workers stay whole
                if place.rank == 0 and state.step % options.checkpoint_every == 0:
                    checkpoints.save(state)
                # Only when all ranks have notice, so that all stop after the same step.
                if group is not None and group.sum([float(notice.pending)]) == [place.world]:
                    if place.rank == 0:
                        checkpoints.save(state)
                    group.sum([0.0])  # whoever acknowledges may be stopped, and the others with it
                    notice.acknowledge()
                    notice.wait_for_end()
        finally:
            # `state` is only ever replaced by a complete one, so whatever ends us, this is sound.
            if place.rank == 0:
                checkpoints.save(state)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model in plain Python, elastically.")
    parser.add_argument("--steps", type=int, default=50, help="steps to train in all, over every restart")
    parser.add_argument("--step-seconds", type=float, default=0.05, help="seconds each step takes at least")
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="directory that all nodes share")
    parser.add_argument("--checkpoint-every", type=int, default=5, metavar="STEPS")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument(
        "--sleep-only",
        action="store_true",
        help="count steps without talking to the peers: such a worker never notices that one is lost",
    )
    failing = parser.add_argument_group("failing on purpose")
    failing.add_argument("--fail-at-step", type=int, metavar="STEP")
    failing.add_argument("--fail-rank", type=int, default=0, metavar="RANK")
    failing.add_argument("--fail-code", type=int, default=1, metavar="EXIT_CODE")
    failing.add_argument("--fail-times", type=int, default=1, help="fail while fewer restarts were spent")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(parse_options(), Place.from_environ(os.environ))
