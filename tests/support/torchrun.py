"""A job under torchrun, unmodified, on our rendezvous: real agents and workers on one machine."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path
from types import TracebackType

from support.job import Agent, wait_until

WORKER = """
import json, os, sys, time
names = {"rank": "RANK", "world": "WORLD_SIZE", "port": "MASTER_PORT",
         "restarts": "TORCHELASTIC_RESTART_COUNT"}
place = {key: int(os.environ[name]) for key, name in names.items()}
print(json.dumps(place) + "\\n", end="", flush=True)
while not os.path.exists(sys.argv[1]):
    if os.path.exists(f"{sys.argv[1]}-fail-{place['rank']}-{place['restarts']}"):
        sys.exit(7)
    time.sleep(0.02)
"""
"""A worker that says where it is, and works until the file of its argument is there.

It fails where there is one named FILE-fail-RANK-RESTARTS. It does not notice when a peer is lost.
"""


class TorchrunJob:
    """Agents of one job. A context manager: it kills what is left."""

    def __init__(self, endpoint: str, directory: Path, *, nodes: str, ttl: int = 2) -> None:
        self.run_id = f"torchrun-{uuid.uuid4().hex[:10]}"
        self.endpoint = endpoint
        self.directory = directory
        self.nodes = nodes
        self.ttl = ttl
        self.stop_file = directory / "stop"
        self.agents: list[Agent] = []
        worker = directory / "worker.py"
        worker.write_text(WORKER)
        self.worker = (str(worker), str(self.stop_file))

    def start(self, name: str, *script: str, restarts: int = 0, conf: str = "") -> Agent:
        """Start an agent of that node name, of the script (default: `WORKER`)."""
        settings = f"ttl={self.ttl},last_call_timeout=4,settle_timeout=0.2,node_name={name}"
        argv = [
            f"--nnodes={self.nodes}",
            "--rdzv-backend=elastic-etcd",
            f"--rdzv-endpoint={self.endpoint}",
            f"--rdzv-id={self.run_id}",
            f"--rdzv-conf={settings}{',' + conf if conf else ''}",
            f"--max-restarts={restarts}",
            *(script or self.worker),
        ]
        env = {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        agent = Agent(name, argv, directory=self.directory, env=env, module="torch.distributed.run")
        self.agents.append(agent)
        return agent

    def finish(self) -> None:
        """Let the workers end well."""
        self.stop_file.touch()

    def fail(self, rank: int, restarts: int) -> None:
        """Let the worker of that rank fail that has been restarted so often."""
        Path(f"{self.stop_file}-fail-{rank}-{restarts}").touch()

    def __enter__(self) -> TorchrunJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self.agents:
            workers = children(agent.process.pid)
            agent.process.kill()  # before the pipe is closed: an orphan would hold it open
            for pid in workers:
                end(pid)
            agent.close()
            if kind is not None:
                print(f"--- {agent.name}\n{agent.text}")


def lose(agent: Agent) -> None:
    """Kill an agent and its workers, as the loss of a machine would."""
    workers = children(agent.process.pid)
    agent.send(signal.SIGKILL)
    for pid in workers:
        end(pid)
    agent.wait()


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        print(f"process {pid} has ended already", file=sys.stderr)


def wait_for_world(agents: list[Agent], size: int, *, not_port: int = 0) -> int:
    """Wait until all these agents run a worker in one new world of that many workers; its master port."""

    def new(agent: Agent) -> bool:
        places = agent.places()
        return bool(places) and places[-1]["world"] == size and places[-1]["port"] != not_port

    ports: set[int] = set()

    def same() -> bool:
        ports.clear()
        ports.update(agent.places()[-1]["port"] for agent in agents)
        return len(ports) == 1 and all(map(new, agents))

    for agent in agents:
        agent.wait_until(new, f"a world of {size}")
    # Meanwhile one of them may have gone on to yet another world, in which the others are not yet.
    wait_until(same, "all workers of a world have the same master")
    return ports.pop()
