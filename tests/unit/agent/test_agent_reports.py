"""Workers' reports as an instrument: who counts as failed, who is named, and when the loop is to look."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping

import pytest
from support.memory_store import Memory, MemoryStore
from support.reporting import Worker

from elastic.agent.server import WorkerGroup, WorkerSpec
from elastic.agent.server.instruments import (
    Entered,
    Instruments,
    Joining,
    Leaving,
    LoopEvent,
    LoopState,
    Regrouping,
    WorkersStopped,
    WorkersSucceeded,
)
from elastic.agent.server.policy import Phase
from elastic.agent.server.reports import Reports
from elastic.agent.server.stragglers import Finding, Stragglers
from elastic.agent.server.waiting import wait
from elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
from elastic.timer.watch import WorkerWatch

Times = Mapping[str, Mapping[int, float]]

AT = LoopState(phase=Phase.RUNNING, round=1, rank=1)
LATE = """
import sys, elastic.worker as worker
with worker.deadline(0.2, "step"):
    sys.stdin.readline()
"""
STEPS = """
import time, sys, elastic.worker as worker
for _ in range(400):
    time.sleep({seconds}); worker.step()
"""


def entered(*workers: Worker) -> Entered:
    """A world in which this node has the workers from rank 4 on."""
    group = WorkerGroup(WorkerSpec("trainer", len(workers), None, entrypoint="x"))  # type: ignore[arg-type]
    for member, worker in zip(group.workers, workers, strict=True):
        member.global_rank, member.id = 4 + member.local_rank, worker.pid
    info = RendezvousInfo(MemoryStore(Memory()), 1, 2, RendezvousStoreInfo("here", 1), 1)
    return Entered(info, group, {m.local_rank: m.id for m in group.workers}, 0.0)


@pytest.fixture
def found() -> list[Finding]:
    return []


@pytest.fixture
def measured() -> list[Times]:
    return []


@pytest.fixture
def reports(found: list[Finding], measured: list[Times]) -> Iterator[Reports]:
    instrument = Reports(WorkerWatch(), Stragglers(), found=found.append, measured=measured.append)
    yield instrument
    instrument.close()


def follow(reports: Reports, until: float = 20) -> Iterator[None]:
    """As the agent's loop, which wakes up only where an instrument wants it to."""
    everything = Instruments([reports])
    give_up = time.monotonic() + until
    while time.monotonic() < give_up:
        wait(everything.filenos(), min([*everything.wakeups(), give_up]))
        everything.turn(AT)
        yield
    raise AssertionError("nothing of that kind has happened")


def test_a_worker_that_is_late_counts_as_failed_until_the_next_world(reports: Reports) -> None:
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(LATE, reports.environment(i))) for i in range(2)]
        workers[0].tell()  # it is in time
        workers[0].wait()
        reports.tell(entered(*workers))
        for _ in follow(reports):
            if reports.failed_workers():
                break
        assert set(reports.failed_workers()) == {1}
        assert "the deadline 'step' of rank 5, 0.2 s, has passed" in reports.failed_workers()[1]
        reports.turn(AT)
        assert set(reports.failed_workers()) == {1}, "until something comes of it"
        reports.tell(WorkersStopped(1.0, {}, {}))
        assert reports.failed_workers() == {}


ENDS: list[LoopEvent] = [
    WorkersSucceeded(1.0),
    WorkersStopped(1.0, {}, {}),
    Regrouping("why", superseded=True, waiting=0, leaving=0),
    Leaving("received SIGTERM"),
]


def test_workers_that_are_being_stopped_are_not_late(reports: Reports) -> None:
    with Worker(LATE, reports.environment(0)) as worker:
        reports.tell(entered(worker))
        for _ in follow(reports):
            if reports.failed_workers():
                break
        for event in ENDS:
            reports.tell(event)
            reports.turn(AT)
            assert (reports.failed_workers(), reports.wakeup()) == ({}, None)
            reports.tell(entered(worker))  # it is late still, so that it is found each time
            reports.turn(AT)
            assert set(reports.failed_workers()) == {0}


def test_to_wait_for_a_world_changes_nothing(reports: Reports) -> None:
    with Worker(LATE, reports.environment(0)) as worker:
        reports.tell(entered(worker))
        reports.tell(Joining("so that the next one is formed"))
        for _ in follow(reports):
            if reports.failed_workers():
                return


def test_who_is_slow_is_named_by_its_rank_in_the_world(
    reports: Reports, found: list[Finding], measured: list[Times], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "elastic.agent")
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(STEPS.format(seconds=seconds), reports.environment(0)))
            for seconds in (0.02, 0.02, 0.08)
        ]
        reports.tell(entered(*workers))
        for _ in follow(reports):
            if found:
                break
        assert measured[-1].keys() == {"step"}
        assert max(measured[-1]["step"], key=lambda rank: measured[-1]["step"][rank]) == 6
        reports.tell(WorkersStopped(1.0, {}, {}))
        reports.turn(AT)
        assert measured[-1] == {}
    assert [finding.rank for finding in found] == [6]
    assert [record.message for record in caplog.records] == [str(found[0])]
    assert reports.failed_workers() == {}, "it is only named"


def test_workers_that_report_nothing_wake_nobody(reports: Reports) -> None:
    with Worker("input()", reports.environment(0)) as worker:
        reports.tell(entered(worker))
        reports.turn(AT)
        assert reports.wakeup() is None
