"""What a user sees of a job by its instruments: the events in a file, the metrics, the health checks."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.command import PATIENCE
from support.job import Agent, wait_until

WORKER = """
import json, os, signal, sys, time
name = os.environ["ELASTIC_NODE_ID"].rpartition("-")[0]
place = {"rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"]),
         "round": int(os.environ["ELASTIC_ROUND"])}
here = sys.argv[1] + "." + name
def until(file):
    while not os.path.exists(file):
        time.sleep(0.02)
"""
"""Begins a worker. Its argument is the path of the job's stop file, beside which other files tell it more."""


@dataclass(frozen=True, slots=True)
class Told:
    """An event, as it stands in a file."""

    name: str
    about: dict[str, Any]

    @property
    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.about["metadata"])
        return found


def events(path: Path) -> list[Told]:
    """All events of a file, the names without ``elastic.``."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [Told(each["name"].removeprefix("elastic."), each["metadata"]) for each in found]


def names(told: list[Told]) -> Counter[str]:
    return Counter(each.name for each in told)


def wait_for_event(path: Path, name: str, *, times: int = 1) -> None:
    wait_until(lambda: names(events(path))[name] >= times, f"{times} x {name} in {path}")


def address(agent: Agent, pattern: str) -> str:
    """What the agent's log names in that place."""
    agent.wait_for_line(pattern)
    match = re.search(pattern, agent.text, re.MULTILINE)
    assert match is not None
    return match.group(1)


def fetch(url: str, *, seconds: float = PATIENCE) -> tuple[int, str]:
    """Status and body."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@dataclass(frozen=True, slots=True)
class Scrape:
    """What Prometheus would read."""

    text: str

    def __getitem__(self, sample: str) -> float:
        """The value of ``name`` or ``name{label="value"}``, whatever the labels that all samples have."""
        name, _, label = sample.rstrip("}").partition("{")
        found = [
            float(line.rpartition(" ")[2])
            for line in self.text.splitlines()
            if re.match(rf"{name}(\{{| )", line) and label in line
        ]
        assert len(found) == 1, f"{sample}: {found}\n{self.text}"
        return found[0]


def scrape(agent: Agent) -> Scrape:
    status, text = fetch(address(agent, r"metrics are at (http://127\.0\.0\.1:\d+/metrics)$"))
    assert status == 200
    return Scrape(text)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe got: the statuses of /healthz and /readyz, and the state that the second one told."""

    healthy: int
    ready: int
    state: str


class Probe:
    """Asks an agent both questions, again and again, as Kubernetes does. A context manager."""

    def __init__(self, agent: Agent, *, pause: float = 0.05) -> None:
        pattern = r"health checks are answered at (http://127\.0\.0\.1:\d+)/healthz$"
        self.base = address(agent, pattern)
        self.answers: list[Answer] = []
        self._pause = pause
        self._over = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"probe-{agent.name}")

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        status, text = fetch(self.base + path)
        content: dict[str, Any] = json.loads(text)
        return status, content

    def gather(self, state: str, *, count: int = 4) -> list[Answer]:
        """Wait until the agent has told that state so often from now on; these answers."""
        first = len(self.answers)

        def found() -> list[Answer]:
            return [answer for answer in self.answers[first:] if answer.state == state]

        with self._news:
            self._news.wait_for(lambda: self._over.is_set() or len(found()) >= count, PATIENCE)
        assert len(found()) >= count, f"not {state}, but {Counter(a.state for a in self.answers[first:])}"
        return found()

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            try:
                healthy, _ = self.ask("/healthz")
                ready, content = self.ask("/readyz")
            except OSError:  # it has ended
                self._over.set()
            else:
                self.answers.append(Answer(healthy, ready, content.get("state", "silent")))
            with self._news:
                self._news.notify_all()

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
