"""The kill ladder: ask, wait, kill, sweep, give up. Pure.

Time comes in as monotonic seconds and the number of processes that still live comes in as a count;
what comes out is the next state and the step to perform. It signals nothing and reads no clock;
:mod:`elastic.utils.ending` does, for whoever waits and for whoever must not.

::

    ASKED --- nobody left, twice ---------------------> FINISHED
      |                                                  ^
      | kill_at                                          |
      v                                                  |
    KILLING --- nobody left, twice ----------------------+
      |  ^ |
      |  +-+ rescan_at: kill what was born meanwhile
      |
      +--- give_up_at -----------------------------> ABANDONED
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

GIVE_UP_SECONDS = 5.0
"""From the first kill until what still lives is reported as unkillable and left alone."""

RESCAN_SECONDS = 0.1
"""Between two sweeps while something still lives after a kill."""

CONFIRM_SECONDS = 0.02
"""Between finding nobody and looking again: a process that is being born or executed can be overlooked."""


class Phase(Enum):
    """Where a ladder stands."""

    ASKED = auto()
    KILLING = auto()
    FINISHED = auto()
    ABANDONED = auto()


class Step(Enum):
    """What to do now."""

    NOTHING = auto()
    KILL = auto()


@dataclass(frozen=True, slots=True)
class Escalation:
    """One ladder. Times are monotonic seconds; ``give_up_after`` counts from the first kill."""

    phase: Phase
    kill_at: float
    give_up_after: float = GIVE_UP_SECONDS
    rescan_at: float = 0.0
    give_up_at: float = 0.0
    confirm_at: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase in {Phase.FINISHED, Phase.ABANDONED}

    @property
    def next_wakeup(self) -> float | None:
        """When to call :func:`advance` even if nothing happens before; None when it is over."""
        if self.is_over:
            return None
        if self.confirm_at is not None:
            return self.confirm_at
        return self.kill_at if self.phase is Phase.ASKED else min(self.rescan_at, self.give_up_at)


def begin(now: float, grace: float, give_up_after: float = GIVE_UP_SECONDS) -> Escalation:
    """Start a ladder: everyone has just been asked to end and has ``grace`` seconds to do so."""
    return Escalation(phase=Phase.ASKED, kill_at=now + max(grace, 0.0), give_up_after=give_up_after)


def shorten(ladder: Escalation, now: float, grace: float) -> Escalation:
    """Hurry: the kill comes ``grace`` seconds from now, or earlier where it was already due earlier."""
    if ladder.phase is not Phase.ASKED:
        return ladder
    return replace(ladder, kill_at=min(ladder.kill_at, now + max(grace, 0.0)))


def advance(ladder: Escalation, now: float, *, living: int) -> tuple[Escalation, Step]:
    """Take the due step. ``living`` counts the processes of the job that have not ended."""
    if ladder.is_over:
        return ladder, Step.NOTHING
    if living == 0:
        if ladder.confirm_at is None:
            return replace(ladder, confirm_at=now + CONFIRM_SECONDS), Step.NOTHING
        is_confirmed = now >= ladder.confirm_at
        return (replace(ladder, phase=Phase.FINISHED) if is_confirmed else ladder), Step.NOTHING
    ladder = replace(ladder, confirm_at=None)
    if ladder.phase is Phase.ASKED:
        if now < ladder.kill_at:
            return ladder, Step.NOTHING
        killing = replace(
            ladder,
            phase=Phase.KILLING,
            rescan_at=now + RESCAN_SECONDS,
            give_up_at=now + ladder.give_up_after,
        )
        return killing, Step.KILL
    if now >= ladder.give_up_at:
        return replace(ladder, phase=Phase.ABANDONED), Step.NOTHING
    return replace(ladder, rescan_at=now + RESCAN_SECONDS), Step.KILL
