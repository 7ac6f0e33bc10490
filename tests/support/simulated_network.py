"""What lies between the simulated nodes and the simulated etcd: requests, watches and inboxes.

Each watch goes on from the revision that it has told, and tells the next event only when it is asked to,
so whoever drives the world decides how late a node's news is. That a connection is cut, or that the store
has lost its data, a watch finds out the way the real one does.
"""

from __future__ import annotations

import enum
import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic.rendezvous.backends.api import Interrupted, Learned, Missed, News, Resumed
from elastic.rendezvous.core.actions import Commit
from elastic.rendezvous.core.records import Round
from elastic.rendezvous.loop import Item
from support.fake_etcd import FakeEtcd, in_scope


class Reply(enum.Enum):
    """What becomes of one request on the network."""

    ARRIVES = "it is applied, and the answer arrives"
    LOST = "it is not applied, and no answer arrives"
    ANSWER_LOST = "it is applied, and no answer arrives"
    LATE = "it is applied later, and no answer arrives"


@dataclass(slots=True)
class Network:
    """How the nodes reach etcd.

    `reply` is asked for each request of a node, `before` is called ahead of it, and `late` takes the
    transactions that are applied later. `spread` is what nodes choose the length of their pauses by.
    """

    etcd: FakeEtcd
    clock: Callable[[], float]
    reply: Callable[[str], Reply]
    before: Callable[[str], None]
    given: Callable[[str, Round], None]
    say: Callable[[str], None]
    spread: Callable[[float, float], float]
    down: bool = False
    late: list[tuple[Commit, int | None]] = field(default_factory=list)


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


class SimulatedWatch:
    """Tells events of `scope` from a revision on, one by one."""

    def __init__(self, network: Network, scope: tuple[str, ...], after: int) -> None:
        self._etcd = network.etcd
        self._scope = scope
        self._told = after
        self._history = self._etcd.history
        self._next = 0
        self.interrupted = False
        self.ended = False
        self._find()

    def _find(self) -> None:
        log = self._etcd.log
        self._next = len(log)
        while self._next and log[self._next - 1].revision > self._told:
            self._next -= 1

    def pending(self, *, reachable: bool) -> bool:
        """Whether there is something to tell, if not an event then that none can come, or that they do."""
        if self.ended or not reachable:
            return not self.ended and not self.interrupted
        return self.interrupted or self._history != self._etcd.history or self._next < len(self._etcd.log)

    def take(self, *, reachable: bool) -> News | None:
        """The next of it; None for an event that is not of this scope."""
        if not reachable:
            self.interrupted = True
            return Interrupted("etcd cannot be reached")
        if self._history != self._etcd.history:
            self._history = self._etcd.history
            if self._etcd.revision < self._told:
                self.ended = True
                return Missed("etcd is behind what this watch has seen", wiped=True)
            self._find()
            return self._resumed()
        if self.interrupted:
            return self._resumed()
        fact = self._etcd.log[self._next]
        self._next += 1
        self._told = fact.revision
        return Learned((fact,)) if in_scope(fact.key, self._scope) else None

    def _resumed(self) -> News | None:
        was, self.interrupted = self.interrupted, False
        return Resumed() if was else None

    def miss(self) -> Missed:
        """It has fallen so far behind that etcd has dropped what it missed."""
        self.ended = True
        return Missed("etcd has compacted what this watch missed")

    def hear_again(self, count: int) -> None:
        """The stream is resumed from an earlier revision, and tells the last events again."""
        self._next = max(0, self._next - count)
