"""All instruments of an agent as one: each is told, asked and closed, and none hides another."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from elastic.agent.server.instruments import Instrument, Instruments, Joining, LoopEvent, LoopState
from elastic.agent.server.policy import Phase

AT = LoopState(phase=Phase.RUNNING)


class Recorder(Instrument):
    """Answers by its number, and remembers what it was told."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.told: list[object] = []

    def tell(self, event: LoopEvent) -> None:
        self.told.append(event)

    def turn(self, state: LoopState) -> None:
        self.told.append(state)

    def fileno(self) -> int | None:
        return self.number or None

    def wakeup(self) -> float | None:
        return float(self.number) if self.number else None

    def failed_workers(self) -> Mapping[int, str]:
        return {0: f"by {self.number}", self.number: "of its own"} if self.number else {}

    def environment(self, local_rank: int) -> Mapping[str, str]:
        return {f"NUMBER_{self.number}": str(local_rank)}

    def close(self) -> None:
        self.told.append("closed")


def test_each_is_told_and_asked() -> None:
    members = [Recorder(number) for number in (0, 1, 2)]
    everything = Instruments(members)
    event = Joining("the agent has started")
    everything.tell(event)
    everything.turn(AT)
    everything.close()
    assert [member.told for member in members] == [[event, AT, "closed"]] * 3
    assert everything.filenos() == [1, 2]
    assert everything.wakeups() == [1.0, 2.0]
    assert everything.environment(7) == {"NUMBER_0": "7", "NUMBER_1": "7", "NUMBER_2": "7"}
    assert everything.failed_workers() == {0: "by 1", 1: "of its own", 2: "of its own"}, "the first counts"


@pytest.mark.parametrize("everything", [Instruments(), Instruments([Instrument()])], ids=["none", "idle"])
def test_what_does_nothing_wants_nothing(everything: Instruments) -> None:
    everything.tell(Joining(""))
    everything.turn(AT)
    assert (everything.filenos(), everything.wakeups()) == ([], [])
    assert (everything.failed_workers(), everything.environment(0)) == ({}, {})
    everything.close()
