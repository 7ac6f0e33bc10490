"""A whole job: real agents of the real command on one machine, over a real etcd."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from elastic.etcd import Client
from support.command import PATIENCE, environment
from support.diary import DIARIST, Diary

_PLACE = """
import json, os, sys, time
names = {"rank": "RANK", "world": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "round": "ELASTIC_ROUND",
         "port": "MASTER_PORT", "restarts": "TORCHELASTIC_RESTART_COUNT"}
place = {key: int(os.environ[name]) for key, name in names.items()}
print(json.dumps(place) + "\\n", end="", flush=True)  # one write: a line stays whole
mark = f"{sys.argv[1]}-{place['round']}-"
open(mark + str(place["rank"]), "w").close()
"""
_WORK = """
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""
_FAIL = """
rank, code, times = map(int, sys.argv[2:])
while not all(os.path.exists(mark + str(other)) for other in range(place["world"])):
    time.sleep(0.02)
if place["rank"] == rank and place["restarts"] < times:
    if code < 0:
        os.kill(os.getpid(), -code)
    print("this worker fails on purpose", file=sys.stderr)
    sys.exit(code)
"""

SLEEPER = _PLACE + _WORK
"""A worker that says where it is, and works until a file is there: its argument is the file."""

FAILER = _PLACE + _FAIL + _WORK
"""The same, but one rank fails, once all have started, while fewer restarts were spent.

Its arguments are FILE RANK CODE TIMES; a negative code is a signal.
"""


class Agent:
    """One running agent. Everything that it and its workers print is in `lines`."""

    def __init__(
        self, name: str, argv: list[str], *, directory: Path, env: dict[str, str], module: str = "elastic.run"
    ) -> None:
        self.name = name
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *argv],
            cwd=directory,
            env=environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def places(self) -> list[dict[str, Any]]:
        """What the workers said of where they are, in order."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def wait_until(self, condition: Callable[[Agent], object], what: str) -> None:
        """Wait until what was printed meets the condition."""
        with self._news:
            met = self._news.wait_for(lambda: condition(self) or self._ended, PATIENCE)
            assert met, f"{self.name}: {what}: not within {PATIENCE:g} s\n{self.text}"
        assert condition(self), f"{self.name}: {what}: it ended without\n{self.text}"

    def wait_for_line(self, pattern: str) -> None:
        self.wait_until(lambda a: re.search(pattern, a.text, re.MULTILINE), pattern)

    def wait_for_world(self, size: int, *, after_round: int = 0) -> int:
        """Wait until a worker of this agent runs in a world of that many workers; the number of its round."""

        def found(agent: Agent) -> list[int]:
            return [p["round"] for p in agent.places() if p["world"] == size and p["round"] > after_round]

        self.wait_until(found, f"a world of {size} after round {after_round}")
        return found(self)[-1]

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; the exit code as a shell would show it."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            # Where it hangs is in what it says of this, if it has Python's fault handler.
            self.send(signal.SIGABRT)
            self._reader.join(5)
            raise AssertionError(f"{self.name} has not ended within {PATIENCE:g} s\n{self.text}") from None
        self._reader.join(PATIENCE)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Job:
    """Agents of one run. A context manager: it kills what is left."""

    def __init__(
        self,
        endpoint: str,
        directory: Path,
        *,
        nodes: str,
        ttl: int = 2,
        last_call: int = 1,
        run_id: str | None = None,
        user: str | None = None,
        password: str | None = None,
        backend: str = "etcd",
    ) -> None:
        """`user` and `password` are the test's own, to look at what is stored; agents get theirs by `start`.

        With the `run_id` of an earlier one it is another run of that job.
        """
        self.endpoint = endpoint
        self.directory = directory
        self.nodes = nodes
        self.ttl = ttl
        self.last_call = last_call
        self.run_id = run_id or f"job-{uuid.uuid4().hex[:10]}"
        unique = uuid.uuid4().hex[:6]  # a job may be run again under its id
        self.stop_file = directory / f"stop-{unique}"
        self.diary = Diary(directory / f"diary-{unique}")
        self.agents: list[Agent] = []
        self.backend = backend
        self._client = Client([endpoint], user=user, password=password) if backend == "etcd" else None

    def script(self, text: str, name: str = "worker.py") -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def start(
        self,
        name: str,
        *script: str,
        flags: tuple[str, ...] = (),
        conf: str = "",
        endpoint: str = "",
        **env: str,
    ) -> Agent:
        """Start an agent of that node name; `endpoint` is where it finds etcd, if not where others do."""
        settings = f"ttl={self.ttl},last_call_timeout={self.last_call},settle_timeout=0.2,node_name={name}"
        argv = [
            f"--nnodes={self.nodes}",
            f"--rdzv-backend={self.backend}",
            f"--rdzv-endpoint={endpoint or self.endpoint}",
            f"--rdzv-id={self.run_id}",
            f"--rdzv-conf={settings}{',' + conf if conf else ''}",
            *flags,
            *script,
        ]
        agent = Agent(name, argv, directory=self.directory, env=env)
        self.agents.append(agent)
        return agent

    def start_diarist(
        self,
        name: str,
        *,
        linger: float = 0.0,
        conf: str = "",
        endpoint: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Agent:
        """Start an agent whose one worker keeps the job's diary, without any restart to spend.

        The worker goes on for `linger` seconds after it is told to end.
        """
        script = self.script(DIARIST, "diarist.py")
        arguments = (script, str(self.stop_file), str(self.diary.path), str(linger))
        flags = ("--max-restarts=0",)
        variables = {"PYTHONFAULTHANDLER": "1", **(env or {})}
        return self.start(name, *arguments, flags=flags, conf=conf, endpoint=endpoint, **variables)

    def finish(self) -> None:
        """Let the sleeping workers end well."""
        self.stop_file.touch()

    @property
    def _etcd(self) -> Client:
        assert self._client is not None, f"the run is not kept in etcd but by {self.backend}"
        return self._client

    def key_names(self) -> list[str]:
        """The keys of the run in etcd, without its prefix."""
        prefix = f"/elastic/{self.run_id}/"
        return [kv.key.decode().removeprefix(prefix) for kv in self._etcd.get_prefix(prefix.encode()).kvs]

    def record(self, key: str) -> dict[str, Any]:
        kv = self._etcd.get(f"/elastic/{self.run_id}/{key}".encode())
        assert kv is not None, f"{key} is not there"
        record: dict[str, Any] = json.loads(kv.value)
        return record

    def node_names(self) -> set[str]:
        nodes = (key.removeprefix("nodes/") for key in self.key_names() if key.startswith("nodes/"))
        return {node.rpartition("-")[0] for node in nodes}

    def processes(self) -> list[int]:
        """Every process of the job's workers, by the variable that they all inherit."""
        mark = f"ELASTIC_RUN_ID={self.run_id}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for agent in self.agents:
            agent.close()
            if kind is not None:
                print(f"--- {agent.name}\n{agent.text}")
        if self._client is not None:
            self._client.close()


def wait_until(condition: Callable[[], object], what: str, *, patience: float = PATIENCE) -> float:
    """Look again and again until a condition of the outside world holds; how many seconds that took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < patience, f"{what}: not within {patience:g} s"
        time.sleep(0.02)
    return time.monotonic() - started


def kill(agent: Agent, job: Job) -> float:
    """Kill an agent and its workers, as the loss of a machine would; the monotonic time of it."""
    workers = [pid for pid in job.processes() if _parent(pid) == agent.process.pid]
    now = time.monotonic()
    agent.send(signal.SIGKILL)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    agent.wait()
    return now


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1
