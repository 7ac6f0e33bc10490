"""A document in a plain store as the place of the simulated nodes' records, and one node's way to it.

The backend of a node's shell is the real one, with all that it is made of, over a store that answers late,
not at all, or after others; only its thread is none. What that would do is done when the driver of the world
has it done, also in the middle of a call of the shell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import timedelta

from elastic.rendezvous import RendezvousSettings, TpRendezvousBackend
from elastic.rendezvous.backends.api import CommitResult, Inbox, LeaseEnded, MembershipBackend, News, Reading
from elastic.rendezvous.backends.document.document import Document
from elastic.rendezvous.backends.document.membership import DocumentMembership
from elastic.rendezvous.backends.document.news import DocumentNews, Idle, NewsThread
from elastic.rendezvous.backends.document.pace import Pace
from elastic.rendezvous.core.actions import Commit, Delete
from elastic.rendezvous.core.invariants import Violation
from elastic.store import StoreError
from support.fake_etcd import FakeEtcd
from support.fake_store import Begin, Drop, FakeStore, Grant, Purpose, Tend
from support.memory_store import Memory, MemoryStore
from support.simulated_network import Access, Clock, Network, Reply
from support.simulated_place import LEASE, Place

DRIFT = 0.01
"""How much faster or slower than the world's a node's clock may be, as a part of it."""

_SETTINGS = RendezvousSettings(run_id="job", min_nodes=1, max_nodes=2, ttl=timedelta(seconds=LEASE))


class SimulatedPace(Pace):
    """A node's own clock; a pause inside a call lets others act."""

    def __init__(self, node_id: str, network: Network, clock: Clock) -> None:
        super().__init__()
        self._node_id = node_id
        self._network = network
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def spread(self, low: float, high: float) -> float:
        return self._network.spread(low, high)

    def pause(self, seconds: float) -> None:
        self._network.sleep(self._node_id, seconds)


class SimulatedStore(MemoryStore):
    """One node's client of the store. `purpose` is that of what it does at present."""

    def __init__(self, node_id: str, store: FakeStore, network: Network, clock: Clock) -> None:
        super().__init__(Memory())
        self.purpose: Purpose = Begin()
        self._node_id = node_id
        self._shared = store
        self._network = network
        self._clock = clock

    @property
    def reachable(self) -> bool:
        return not self.cut and not self._network.down

    def peek(self, key: str) -> bytes | None:
        with self._request("a read") as reply:
            if reply is not Reply.ARRIVES:
                raise StoreError("no answer")
            return self._shared.value

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        assert isinstance(expected, bytes)
        assert isinstance(desired, bytes)
        old, new = expected, desired
        purpose = self.purpose if old else Begin()
        what = purpose.step if isinstance(purpose, Commit) else type(purpose).__name__.lower()

        def write() -> bytes:
            conflicts = self._shared.conflicts
            found = self._shared.compare_set(self._node_id, old, new, purpose=purpose)
            if self._shared.conflicts > conflicts:
                self._network.say(f"{self._node_id}: {what} met another document")
            return found

        with self._request(what) as reply:
            if reply is Reply.LATE:
                self._network.late.append((what, write))
            found = b"" if reply in (Reply.LOST, Reply.LATE) else write()
            if reply is not Reply.ARRIVES:
                raise StoreError("no answer")
            return found

    @contextlib.contextmanager
    def _request(self, what: str) -> Iterator[Reply]:
        """What becomes of a request. Others may act before it is carried out, and before it is answered."""
        sent = self._clock.now()
        self._network.meanwhile(self._node_id)
        if not self.reachable:
            raise StoreError("the store cannot be reached")
        reply = self._network.reply(self._node_id)
        if reply is not Reply.ARRIVES:
            self._network.say(f"{self._node_id}: no answer to {what} ({reply.value})")
        yield reply
        self._network.meanwhile(self._node_id)
        if self._gives_up(self._clock.now() - sent):
            self._network.say(f"{self._node_id}: no answer to {what} in time")
            raise StoreError("no answer in time")

    def _gives_up(self, seconds: float) -> bool:
        """Whether a call that took so long has no answer. Who was itself held up may find one anyway."""
        if not self.reachable:
            return True
        return seconds > _SETTINGS.call_seconds and self._network.spread(0.0, 1.0) < 0.5


class _NoThread(NewsThread):
    """The driver makes the turns."""

    def start(self) -> None:
        pass


class _CheckedInbox:
    """Passes news on; no lease may be said to have ended that is there."""

    def __init__(self, inbox: Inbox, check: Callable[[], None]) -> None:
        self._inbox = inbox
        self._check = check

    def put(self, item: News, /) -> None:
        if isinstance(item, LeaseEnded):
            self._check()
        self._inbox.put(item)


class SimulatedDocument(DocumentMembership):
    """The real backend of one node. `checks` is shown each commit."""

    def __init__(
        self,
        node_id: str,
        store: FakeStore,
        network: Network,
        *,
        clock: Clock,
        checks: Callable[[Commit], None],
        settings: RendezvousSettings,
    ) -> None:
        self._client = SimulatedStore(node_id, store, network, clock)
        super().__init__(
            TpRendezvousBackend(self._client, "job"),
            self._client,
            node_id=node_id,
            settings=settings,
            place="the store",
            pace=SimulatedPace(node_id, network, clock),
            thread=self._begin,
        )
        self._id = node_id
        self._shared = store
        self._network = network
        self._clock = clock
        self._checks = checks
        self._turns: DocumentNews | None = None
        self._idle: Idle | None = None
        self._turning = False

    def _begin(self, news: DocumentNews) -> NewsThread:
        self._turns = news
        return _NoThread(news)

    # -- calls, each with its purpose -------------------------------------------------------------

    @contextlib.contextmanager
    def _with(self, purpose: Purpose) -> Iterator[None]:
        before, self._client.purpose = self._client.purpose, purpose
        try:
            yield
        finally:
            self._client.purpose = before

    def start(self, inbox: Inbox) -> Reading:
        return super().start(_CheckedInbox(inbox, self._check_ended))

    def commit(self, commit: Commit) -> CommitResult:
        self._checks(commit)
        with self._with(commit):
            result = super().commit(commit)
        if not result.succeeded:
            self._network.say(f"{self._id}: {commit.step} was overtaken")
        return result

    def hold_lease(self) -> None:
        with self._with(Grant()):
            super().hold_lease()

    def drop_lease(self) -> bool:
        with self._with(Drop(self._lease.id)):
            return super().drop_lease()

    def _check_ended(self) -> None:
        self._network.say(f"{self._id}: its lease has ended")
        document = self._shared.document
        if document is not None and self._lease.id in document.leases:
            raise Violation(f"{self._id} is told that its lease has ended, and it lives")
        if self._lease.id not in self._shared.granted:
            raise Violation(f"{self._id} is told that its lease has ended, and it has never begun")

    # -- what the driver does ---------------------------------------------------------------------

    @property
    def backend(self) -> MembershipBackend:
        return self

    @property
    def cut(self) -> bool:
        return self._client.cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        self._client.cut = cut

    @property
    def reachable(self) -> bool:
        return self._client.reachable

    @property
    def lease(self) -> str | None:
        return self._lease.id or None

    @property
    def times(self) -> list[float]:
        """When its next turn is due."""
        return [] if self._idle is None or self._turning else [self._clock.in_world(self._idle.until)]

    @property
    def has_news(self) -> bool:
        if self._turns is None or self._turning:
            return False
        idle = self._idle
        return idle is None or self._clock.now() >= idle.until or self._woken(idle)

    def _woken(self, idle: Idle) -> bool:
        """Whether the wait for another document ends, or fails."""
        return idle.held is not None and (not self.reachable or idle.held.token != self._shared.value)

    def take_news(self, *, lease_first: bool = False, which: Callable[[int], int] = lambda _: 0) -> None:
        idle = self._idle
        if self._turns is None or self._turning:
            return
        self._turning = True
        try:
            with self._with(Tend()):
                if idle is not None and idle.held is not None and not self.reachable:
                    self._idle = self._turns.obstructed(StoreError("the connection is broken"))
                else:
                    self._idle = self._turns.turn()
        finally:
            self._turning = False

    def keep_alive(self) -> None:
        """Its turns do."""


class DocumentStore(Place):
    """A plain store with one document in it, which `records` is the model of."""

    name = "store"
    settling = 3.5 * LEASE

    def __init__(self, records: FakeEtcd, network: Network) -> None:
        super().__init__(records, network)
        self.store = FakeStore(records, network.clock, LEASE / (1 + DRIFT))
        self.settings = _SETTINGS

    def beat_every(self, seconds: float) -> None:
        """How often the nodes to come raise their counters; else three times in a lease."""
        self.settings = replace(_SETTINGS, keep_alive_interval=timedelta(seconds=seconds))

    def access(self, node_id: str, *, clock: Clock, checks: Callable[[Commit], None]) -> Access:
        return SimulatedDocument(
            node_id, self.store, self.network, clock=clock, checks=checks, settings=self.settings
        )

    def revoke(self, lease: object) -> None:
        assert isinstance(lease, str)
        self.store.edit(lambda document: document.revoked(lease), purpose=Drop(lease))

    def delete(self, key: str, why: str) -> None:
        if key not in self.records.data:
            return
        commit = Commit(step=why, why=why, guards=(), operations=(Delete(key),))

        def deleted(document: Document) -> Document:
            after = document.applied(commit, lease="", value_of=lambda _: None)
            assert isinstance(after, Document)
            return after

        self.store.edit(deleted, purpose=commit)

    def wipe(self) -> None:
        self.store.wipe()

    def check_settled(self, held: Collection[object]) -> None:
        document = self.store.document
        assert document is not None
        if document.leases.keys() != set(held):
            raise Violation(f"L2: the leases are {sorted(document.leases)}, and nodes hold {held}")
        self.store.calm = True

    def elect(self) -> None:
        self.network.say("store: is back")

    def expire(self) -> None:
        """Nothing ends by itself: nodes end each other's leases."""
