"""Workers that run on after others of their node have ended well: named, or counted as failed."""

from __future__ import annotations

import logging
import time

import pytest
from support.memory_store import Memory, MemoryStore

from elastic.agent.server import Finish, WorkerGroup, WorkerSpec, finish
from elastic.agent.server.instruments import Entered, LoopState, WorkersStopped
from elastic.agent.server.policy import Phase
from elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo


def entered() -> Entered:
    """A world in which this node has ranks 4 to 6."""
    group = WorkerGroup(WorkerSpec("trainer", 3, None, entrypoint="x"))  # type: ignore[arg-type]
    for worker in group.workers:
        worker.global_rank = 4 + worker.local_rank
    info = RendezvousInfo(MemoryStore(Memory()), 1, 2, RendezvousStoreInfo("here", 1), 1)
    return Entered(info, group, {}, 0.0)


def at(*succeeded: int, phase: Phase = Phase.RUNNING) -> LoopState:
    return LoopState(phase=phase, succeeded=frozenset(succeeded))


def follow(instrument: Finish, state: LoopState) -> None:
    """As the agent's loop: it wakes up where the instrument wants it to, and only there."""
    instrument.turn(state)
    while (due := instrument.wakeup()) is not None:
        time.sleep(max(0.0, due - time.monotonic()))
        instrument.turn(state)


def test_whoever_runs_on_for_too_long_counts_as_failed_until_the_next_world() -> None:
    instrument = Finish(0.01)
    instrument.tell(entered())
    follow(instrument, at())
    assert not instrument.failed_workers()
    follow(instrument, at(1))
    assert instrument.failed_workers().keys() == {0, 2}
    assert "rank 5 ended well" in instrument.failed_workers()[0]
    instrument.tell(WorkersStopped(1.0, {}, {}))
    instrument.turn(at(1))
    assert (instrument.failed_workers(), instrument.wakeup()) == ({}, None)


def test_without_a_limit_they_are_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(finish, "TELL_SECONDS", 0.01)
    instrument = Finish(0)
    instrument.tell(entered())
    with caplog.at_level(logging.WARNING, "elastic.agent"):
        follow(instrument, at(0, 1))
        follow(instrument, at(0, 1))
    assert not instrument.failed_workers()
    (message,) = caplog.messages
    assert message.startswith("rank 4, 5 ended well ")
    assert message.endswith(" and rank 6 runs on; --finish-timeout would end that")


@pytest.mark.parametrize("state", [at(), at(0, 1, 2), at(1, phase=Phase.NOTICE), at(1, phase=Phase.STOPPING)])
def test_nobody_is_waited_for_otherwise(state: LoopState) -> None:
    instrument = Finish(1000)
    instrument.tell(entered())
    instrument.turn(at(1))
    assert instrument.wakeup() is not None
    instrument.turn(state)
    assert instrument.wakeup() is None
