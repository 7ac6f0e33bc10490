"""What an agent's loop can be given to watch, and to tell what happens: timers, health, events, metrics.

An `Instrument` never decides what the agent does. It has three ways to take part: it is told facts as they
happen; in each turn of the loop it is shown where the loop stands; and it may say of a running worker that
it has failed. All calls are made by the thread of the loop and must not block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elastic.multiprocessing import ProcessFailure
from elastic.rendezvous import Failure, RendezvousInfo

from .policy import Phase
from .spec import RunResult, WorkerGroup


@dataclass(frozen=True, slots=True)
class Joining:
    """The agent begins to wait for a world."""

    cause: str


@dataclass(frozen=True, slots=True)
class Entered:
    """It is in a world, and its workers run, as the processes of these ids by local rank."""

    info: RendezvousInfo
    group: WorkerGroup
    processes: Mapping[int, int]
    waited: float
    """Seconds since it began to wait for it."""


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker of this node failed, and the others are being stopped. `is_stuck`: it still ran."""

    failure: Failure
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class Regrouping:
    """The workers are being stopped for a new world, and not because one of them failed.

    `superseded`: there is a newer round. Else this node is the first to act on nodes that wait or leave.
    """

    cause: str
    superseded: bool
    waiting: int
    leaving: int


@dataclass(frozen=True, slots=True)
class WorkersSucceeded:
    """All workers of this node have ended well."""

    ran: float
    """Seconds since they were started."""


@dataclass(frozen=True, slots=True)
class WorkersStopped:
    """No worker runs any more. `failures` and `victims` are by global rank, as in `RunResult`."""

    ran: float
    """Seconds since they were started."""
    failures: Mapping[int, ProcessFailure]
    victims: Mapping[int, ProcessFailure]


@dataclass(frozen=True, slots=True)
class Leaving:
    """This node goes, and the job goes on without it."""

    cause: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The agent's part is over: with a result, or with an error that ended it."""

    result: RunResult | None
    error: BaseException | None = None


LoopEvent = (
    Joining | Entered | WorkerFailed | Regrouping | WorkersSucceeded | WorkersStopped | Leaving | Ended
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """Where the loop stands in one turn.

    `connected`: the rendezvous backend answers. `waiting`: how many nodes wait to be let in, and `spares` how
    many for a place to become free, where this node knows. `round` and `rank` are those of the last world (0
    and -1: there was none yet). `succeeded` are the local ranks of the workers that have ended well.
    `find_stragglers` is what an operator wants (None: nothing).
    """

    phase: Phase
    round: int = 0
    rank: int = -1
    world_size: int = 0
    connected: bool = True
    waiting: int = 0
    spares: int = 0
    succeeded: frozenset[int] = frozenset()
    find_stragglers: bool | None = None


class Instrument:
    """One instrument; by default it does nothing. The agent closes it at its end."""

    def tell(self, event: LoopEvent) -> None:
        """Something happened."""

    def turn(self, state: LoopState) -> None:
        """The loop makes a turn: something may be due, or readable at `fileno`."""

    def fileno(self) -> int | None:
        """A descriptor that the loop is to watch for input."""
        return None

    def wakeup(self) -> float | None:
        """The monotonic time at which the next turn is to be made at the latest."""
        return None

    def failed_workers(self) -> Mapping[int, str]:
        """Running workers that count as failed, by local rank, each with a sentence that says why.

        Asked in each turn, after `turn`. From the next `Entered` on it is about the new workers.
        """
        return {}

    def environment(self, local_rank: int) -> Mapping[str, str]:  # noqa: ARG002
        """The variables by which a worker that is about to be started finds this instrument."""
        return {}

    def close(self) -> None:
        """Free what it holds."""


@dataclass(slots=True)
class Instruments:
    """All instruments of one agent, as one."""

    members: Iterable[Instrument] = field(default_factory=tuple)

    def tell(self, event: LoopEvent) -> None:
        for member in self.members:
            member.tell(event)

    def turn(self, state: LoopState) -> None:
        for member in self.members:
            member.turn(state)

    def filenos(self) -> list[int]:
        return [fd for fd in (member.fileno() for member in self.members) if fd is not None]

    def wakeups(self) -> list[float]:
        return [at for at in (member.wakeup() for member in self.members) if at is not None]

    def failed_workers(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for member in self.members:
            for local_rank, reason in member.failed_workers().items():
                found.setdefault(local_rank, reason)
        return found

    def environment(self, local_rank: int) -> dict[str, str]:
        return {k: v for member in self.members for k, v in member.environment(local_rank).items()}

    def close(self) -> None:
        for member in self.members:
            member.close()
