"""The wall clock of one machine is wrong, and is then set: nothing depends on it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from support.command import ROOT
from support.etcd import EtcdServer
from support.job import Job

SHIFT = """
import datetime, os, sys, time
def offset():
    with open(os.environ["CLOCK_OFFSET"]) as file:
        return int(file.read())
def shifted(real, unit):
    return lambda: real() + offset() * unit
time.time, time.time_ns = shifted(time.time, 1), shifted(time.time_ns, 10**9)
class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)
datetime.datetime = Shifted
"""


class WrongClock:
    """A wall clock for all Python of a process that is off by so many seconds, and can be set."""

    def __init__(self, directory: Path, seconds: int) -> None:
        self._file = directory / "offset"
        (directory / "sitecustomize.py").write_text(SHIFT)
        self.set(seconds)
        self.environment = {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}", "CLOCK_OFFSET": str(self._file)}

    def set(self, seconds: int) -> None:
        step = self._file.with_name("step")
        step.write_text(str(seconds))
        step.replace(self._file)  # nobody reads half of it


@pytest.mark.parametrize(
    ("before", "after"), [(-900, 2700), pytest.param(900, -2700, marks=pytest.mark.slow)]
)
def test_a_wrong_clock_changes_nothing(etcd: EtcdServer, tmp_path: Path, before: int, after: int) -> None:
    clock = WrongClock(tmp_path, before)
    with Job(etcd.endpoint, tmp_path, nodes="2:4", ttl=4) as job:
        agents = [job.start_diarist("a", env=clock.environment), job.start_diarist("b")]
        first = max(agent.wait_for_world(2) for agent in agents)
        time.sleep(1.5 * job.ttl)
        clock.set(after)
        time.sleep(2.5 * job.ttl)
        assert len(job.diary.starts()) == 2, "workers were started anew"
        assert "etcd is away" not in agents[0].text + agents[1].text
        # Timers still run: the newcomer is let in after the settle time, and the loss of one is noticed.
        agents.append(job.start_diarist("c"))
        assert {agent.wait_for_world(3) for agent in agents} == {first + 1}
        minutes = {re.findall(r"^\S+ (\d\d:\d\d)", agent.text, re.MULTILINE)[-1] for agent in agents[:2]}
        assert len(minutes) == 2, f"the clock of a was right:\n{agents[0].text}"
        agents.pop().send(9)
        assert {agent.wait_for_world(2, after_round=first + 1) for agent in agents} == {first + 2}
        job.finish()
        assert [agent.wait() for agent in agents] == [0, 0]
        job.diary.check()
