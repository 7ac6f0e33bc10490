"""Every action at every named step of the protocol, in one of the agents of a job: the job ends well.

Node a is the one that stumbles, and each scenario brings it to its step.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.etcd import EtcdServer
from support.job import Agent, Job, wait_until
from support.relay import Relay

from elastic.rendezvous.backends.faults import ACTIONS, STEPS

MakeServer = Callable[..., EtcdServer]

TTL = 2
EVICTED = 76
LEFT = 128 + signal.SIGTERM


class Drill:
    """A job of three in which node a stumbles once. Each method is the scenario of a step.

    A scenario returns the exit codes of those agents that do not end with 0 in it.
    """

    def __init__(self, server: EtcdServer, directory: Path, stack: ExitStack, *, fault: str) -> None:
        self.server = server
        self.directory = directory
        self.fault = fault
        self._stack = stack
        self.job = self._job("2:3")

    def _job(self, nodes: str, *, run_id: str | None = None) -> Job:
        job = Job(self.server.endpoint, self.directory, nodes=nodes, ttl=TTL, run_id=run_id)
        return self._stack.enter_context(job)

    def relay(self) -> Relay:
        return self._stack.enter_context(Relay(("127.0.0.1", self.server.port)))

    def start(self, name: str, endpoint: str = "") -> Agent:
        faults = {"ELASTIC_FAULT": self.fault} if name == "a" else {}
        # An agent that has stumbled may come after the end of the job, and must not begin another.
        token = f"job_token={self.job.stop_file.name}"
        return self.job.start_diarist(name, endpoint=endpoint, conf=token, env=faults)

    def world(self, *agents: Agent) -> None:
        for agent in agents:
            agent.wait_for_world(len(agents))

    def start_world(self, *names: str) -> list[Agent]:
        """Start them one after the other, so that the first one leads, and wait for their world."""
        agents = []
        for name in names:
            agents.append(self.start(name))
            wait_until(lambda: self.job.node_names() == {a.name for a in agents}, f"{name} is registered")
        self.world(*agents)
        return agents

    def stumble(self) -> None:
        """Wait until a does, and help it up again where it stands still."""
        a = next(agent for agent in self.job.agents if agent.name == "a")
        a.wait_for_line(f"ELASTIC_FAULT={self.fault}")
        if self.fault.startswith("pause"):
            stat = Path(f"/proc/{a.process.pid}/stat")
            wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "a stands still")
            time.sleep(1.5 * TTL)
            a.send(signal.SIGCONT)

    def others(self) -> None:
        self.start("b")
        self.start("c")

    # -- the scenarios ----------------------------------------------------------------------------

    def joining(self) -> dict[str, int]:
        self.others()
        self.start("a")
        self.stumble()
        return {}

    active = joining

    def stopping(self) -> dict[str, int]:
        self.start_world("b", "a")
        self.start("c")
        self.stumble()
        return {}

    def done(self) -> dict[str, int]:
        self.start_world("b", "c", "a")
        self.job.finish()
        self.stumble()
        return {}

    def waiting(self) -> dict[str, int]:
        self.start_world("b", "c")
        self.start("a")
        self.stumble()
        return {}

    def spare(self) -> dict[str, int]:
        self.job = self._job("2")
        return self.waiting()

    def leaving(self) -> dict[str, int]:
        _, _, a = self.start_world("b", "c", "a")
        a.send(signal.SIGTERM)
        self.stumble()
        return {"a": LEFT}

    def open(self) -> dict[str, int]:
        self.start("a")
        self.stumble()
        self.others()
        return {}

    def form(self) -> dict[str, int]:
        self.start("a")
        wait_until(lambda: "leader" in self.job.key_names(), "a leads")
        self.others()
        self.stumble()
        return {}

    def announce(self) -> dict[str, int]:
        self.start_world("a", "b")
        self.start("c")
        self.stumble()
        return {}

    def evict(self) -> dict[str, int]:
        _, _, older = self.start_world("a", "b", "c")
        older.name = "older c"
        self.start("c")
        self.stumble()
        older.wait()  # an end of the whole job must not come before its own
        return {"older c": EVICTED}

    def restore(self) -> dict[str, int]:
        relay = self.relay()
        self.world(self.start("a"), *(self.start(name, relay.endpoint) for name in ("b", "c")))
        relay.refuse()
        self.server.kill()
        self.server.wipe()
        self.server.start().wait_ready()
        self.stumble()
        relay.heal()
        return {}

    def close(self) -> dict[str, int]:
        self.start_world("a", "b", "c")
        self.job.finish()
        self.stumble()
        return {}

    def campaign(self) -> dict[str, int]:
        self.job = self._job("1:3")
        relay = self.relay()
        first = self.start("first")
        wait_until(lambda: "leader" in self.job.key_names(), "the first one leads")
        self.world(first, self.start("a"), self.start("b", relay.endpoint))
        relay.refuse()  # or b could be faster
        # Its end must come without a word: who has something to write claims the lead with that.
        first.send(signal.SIGKILL)
        self.stumble()
        relay.heal()
        return {"first": 128 + signal.SIGKILL}

    def incarnate(self) -> dict[str, int]:
        self.start_world("b", "c")
        self.job.finish()
        assert [agent.wait() for agent in self.job.agents] == [0, 0]
        self.job = self._job("2:3", run_id=self.job.run_id)
        self.start("a")
        self.stumble()
        self.others()
        return {}


def faults() -> Iterator[object]:
    """All of them; those of each step in turn take part in every run, the others in the slow one."""
    ways = [(action, when) for when in ("", "after-") for action in ACTIONS]
    for number, step in enumerate(STEPS):
        for place, (action, when) in enumerate(ways):
            slow = (number * 5) % len(ways) != place
            fault = f"{action}@{when}{step}"
            yield pytest.param(fault, step, id=fault, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(("fault", "step"), list(faults()))
def test_the_job_ends_well(
    etcd: EtcdServer, etcd_server: MakeServer, tmp_path: Path, fault: str, step: str
) -> None:
    server = etcd_server() if step == "restore" else etcd
    with ExitStack() as stack:
        drill = Drill(server, tmp_path, stack, fault=fault)
        scenario: Callable[[], dict[str, int]] = getattr(drill, step)
        expected = scenario()
        job = drill.job
        if fault.startswith("die"):
            expected = {**expected, "a": 128 + signal.SIGKILL}
        job.finish()
        ends = {agent.name: agent.wait() for agent in job.agents}
        assert ends == {agent.name: expected.get(agent.name, 0) for agent in job.agents}
        assert job.record("closed")["outcome"] == "SUCCEEDED"
        job.diary.check()
