"""Random sequences of kills and joins over the agents of a job, made from a seed, and what must hold then."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from support.job import Agent, Job, kill, wait_until

SLOTS = 4
MIN_NODES = 2
MAX_NODES = 3
STEPS = 6
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class Step:
    """After `pause` seconds, `deed` is done to the agent of that slot."""

    pause: float
    deed: str
    slot: int

    def __str__(self) -> str:
        return f"+{self.pause:.2f}s {self.deed} {self.slot}"


def sequence(seed: int) -> tuple[Step, ...]:
    """The steps of a seed: agents of a running slot are lost or leave, and those of an empty one join.

    Never are so few left that the job could not go on; one that stands still counts as lost until it goes on.
    """
    chance = random.Random(seed)
    state = ["up"] * SLOTS
    steps = []
    for _ in range(STEPS):
        slot = chance.randrange(SLOTS)
        spared = state.count("up") <= MIN_NODES
        if state[slot] == "down":
            deed = "join"
        elif state[slot] == "still":
            deed = chance.choice(["continue", "lose"])
        elif spared:
            continue
        else:
            deed = chance.choice(["lose", "lose", "kill", "leave", "stop"])
        state[slot] = {"join": "up", "continue": "up", "stop": "still"}.get(deed, "down")
        steps.append(Step(chance.uniform(0.0, _LONGEST_PAUSE), deed, slot))
    return tuple(steps)


class Chaos:
    """Runs the sequence of one seed. AssertionError, with the seed and the steps, for what must not be."""

    def __init__(self, endpoint: str, directory: Path, seed: int) -> None:
        self._seed = seed
        self._steps = sequence(seed)
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._job = Job(endpoint, directory, nodes=f"{MIN_NODES}:{MAX_NODES}", ttl=2)
        self._slots: list[Agent | None] = [None] * SLOTS
        self._still: set[Agent] = set()
        self._leavers: list[Agent] = []
        self._names = 0

    def run(self) -> None:
        with self._job:
            try:
                self._run()
            except Exception as e:
                steps = ", ".join(map(str, self._steps))
                said = "\n".join(f"--- {a.name}\n{a.text}" for a in self._job.agents)
                raise AssertionError(f"seed {self._seed} ({steps}): {e}\n{said}") from e

    def _run(self) -> None:
        for slot in range(SLOTS):
            self._join(slot)
        deeds: dict[str, Callable[[int], None]] = {
            "join": self._join,
            "lose": self._lose,
            "kill": self._kill,
            "leave": self._leave,
            "stop": self._stop,
            "continue": self._continue,
        }
        for step in self._steps:
            time.sleep(step.pause)
            deeds[step.deed](step.slot)
        self._finish()

    def _join(self, slot: int) -> None:
        self._names += 1
        # By the token, one that comes after the end of the job knows that it is not the first of another.
        self._slots[slot] = self._job.start_diarist(f"n{self._names}", conf="job_token=chaos")

    def _taken(self, slot: int) -> Agent:
        agent = self._slots[slot]
        assert agent is not None, f"slot {slot} is empty"
        return agent

    def _lose(self, slot: int) -> None:
        """The machine is gone, with all that ran on it."""
        agent, self._slots[slot] = self._taken(slot), None
        self._still.discard(agent)
        kill(agent, self._job)

    def _kill(self, slot: int) -> None:
        """The agent alone is killed: its workers must not outlive it."""
        agent, self._slots[slot] = self._taken(slot), None
        agent.send(signal.SIGKILL)

    def _leave(self, slot: int) -> None:
        agent, self._slots[slot] = self._taken(slot), None
        agent.send(signal.SIGTERM)
        self._leavers.append(agent)

    def _stop(self, slot: int) -> None:
        agent = self._taken(slot)
        agent.send(signal.SIGSTOP)
        self._still.add(agent)

    def _continue(self, slot: int) -> None:
        agent = self._taken(slot)
        self._still.discard(agent)
        agent.send(signal.SIGCONT)

    def _finish(self) -> None:
        """Whatever goes on at this moment: every agent that is left ends well, and so does the job."""
        for agent in list(self._still):
            self._still.discard(agent)
            agent.send(signal.SIGCONT)
        left = [agent for agent in self._slots if agent is not None]
        self._job.finish()
        ends = {agent.name: agent.wait() for agent in left}
        assert set(ends.values()) == {0}, f"not all that were left ended with 0: {ends}"
        # One that is told to go while Python starts, before it can handle signals, dies of the signal.
        codes = {agent.name: agent.wait() for agent in self._leavers}
        assert set(codes.values()) <= {0, 128 + signal.SIGTERM}, codes
        diary = self._job.diary
        diary.check()
        assert diary.starts(), "no world ever ran"
        closed = self._job.record("closed")
        assert closed["outcome"] == "SUCCEEDED", closed
        wait_until(lambda: self._job.processes() == [], "no worker outlives the job")


def run_seeds(endpoint: str, directory: Path, seeds: Sequence[int], *, at_once: int) -> list[str]:
    """Run the sequences of these seeds, so many at a time; what went wrong, each beginning with its seed."""

    def run(seed: int) -> str | None:
        try:
            Chaos(endpoint, directory / f"seed-{seed}", seed).run()
        except AssertionError as e:
            return str(e)
        return None

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        return [failure for failure in pool.map(run, seeds) if failure is not None]
