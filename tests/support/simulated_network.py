"""What lies between the simulated nodes and the place of their records: requests, clocks and inboxes."""

from __future__ import annotations

import enum
import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from elastic.rendezvous.backends.api import MembershipBackend
from elastic.rendezvous.core.records import Round
from elastic.rendezvous.loop import Item


class Reply(enum.Enum):
    """What becomes of one request on the network."""

    ARRIVES = "it is applied, and the answer arrives"
    LOST = "it is not applied, and no answer arrives"
    ANSWER_LOST = "it is applied, and no answer arrives"
    LATE = "it is applied later, and no answer arrives"


@dataclass(slots=True)
class Network:
    """How the nodes reach the place where their records are.

    `reply` is asked for each request of a node, and `meanwhile` is called ahead of it, and where it takes its
    time, before its answer. `late` takes what is applied later, with what it is. `spread` is what nodes
    choose the length of their pauses by, and `sleep` is called for a pause inside a call.
    """

    clock: Callable[[], float]
    reply: Callable[[str], Reply]
    meanwhile: Callable[[str], None]
    given: Callable[[str, Round], None]
    say: Callable[[str], None]
    spread: Callable[[float, float], float]
    sleep: Callable[[str, float], None]
    down: bool = False
    late: list[tuple[str, Callable[[], object]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Clock:
    """A node's own clock: it began elsewhere, and runs at a rate of its own."""

    world: Callable[[], float]
    offset: float = 0.0
    rate: float = 1.0

    def now(self) -> float:
        return self.offset + self.rate * self.world()

    def in_world(self, time: float) -> float:
        """When it shows that time, by the world's clock."""
        when = (time - self.offset) / self.rate
        return when if self.offset + self.rate * when >= time else when + 1e-6


class Access(Protocol):
    """One node's way to its records: a backend, and what the driver of the world does with it.

    `cut` is the state of its connection, and `reachable` says whether it has one at present. `lease` names
    the lease that the node holds, if it does.
    """

    cut: bool

    @property
    def backend(self) -> MembershipBackend: ...

    @property
    def reachable(self) -> bool: ...

    @property
    def lease(self) -> object | None: ...

    @property
    def times(self) -> list[float]:
        """When something becomes due, by the world's clock."""

    @property
    def has_news(self) -> bool:
        """Whether there is something that the node can be told."""

    def take_news(self, *, lease_first: bool = False, which: Callable[[int], int] = lambda _: 0) -> None:
        """Puts one piece of news into the inbox. `which` picks one of so many sources of it."""

    def keep_alive(self) -> None:
        """Time has gone on, and the node is there."""


class SimulatedInbox:
    """News and wishes; never waits, since time does not go on while a node has its turn."""

    def __init__(self) -> None:
        self.items: deque[Item] = deque()

    def put(self, item: Item, /) -> None:
        self.items.append(item)

    def get(self, *, timeout: float) -> Item:
        return self.get_nowait()

    def get_nowait(self) -> Item:
        if not self.items:
            raise queue.Empty
        return self.items.popleft()
