"""Etcd as the place of the simulated nodes' records, and one node's way to it: the backend of its real shell.

A call happens in no time at all, and its answer may be lost. News, of its watches and of its lease, is
put into the inbox piece by piece, when the driver of the world has it taken. Each watch goes on from the
revision that it has told; that a connection is cut, or that the store has lost its data, it finds out the way
the real one does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from elastic.rendezvous.backends.api import (
    BackendUnavailable,
    CommitResult,
    Inbox,
    Interrupted,
    Learned,
    LeaseEnded,
    LeaseGone,
    MembershipBackend,
    Missed,
    News,
    Reading,
    Resumed,
)
from elastic.rendezvous.core.actions import Absent, Commit, Put
from elastic.rendezvous.core.view import NODES, Fact, Seen, followed
from elastic.store import Store
from support import fake_etcd
from support.fake_etcd import Answer, FakeEtcd, in_scope
from support.simulated_network import Access, Clock, Network, Reply
from support.simulated_place import LEASE, Place

_UPKEEP = 3600.0


class SimulatedBackend(MembershipBackend):
    """What one node has of etcd. `cut` is the state of its connection, `checks` is shown each commit."""

    def __init__(
        self, node_id: str, etcd: FakeEtcd, network: Network, *, checks: Callable[[Commit], None]
    ) -> None:
        self.node_id = node_id
        self.etcd = etcd
        self.network = network
        self.cut = False
        self.lease: int | None = None
        self._lease_ends = 0.0
        self._checks = checks
        self._inbox: Inbox | None = None
        self._watch: SimulatedWatch | None = None
        self._nodes_watch: SimulatedWatch | None = None

    @property
    def name(self) -> str:
        return "simulated"

    @property
    def backend(self) -> MembershipBackend:
        return self

    @property
    def reachable(self) -> bool:
        return not self.cut and not self.network.down

    # -- calls ------------------------------------------------------------------------------------

    def _request(self, what: str) -> Reply:
        """What becomes of a request; raises where it cannot even be sent, or is lost."""
        self.network.meanwhile(self.node_id)
        if not self.reachable:
            raise BackendUnavailable("etcd cannot be reached")
        reply = self.network.reply(self.node_id)
        if reply is not Reply.ARRIVES:
            self.network.say(f"{self.node_id}: no answer to {what} ({reply.value})")
        if reply is Reply.LOST:
            raise BackendUnavailable("no answer", maybe=True)
        return reply

    def _ask(self, what: str) -> None:
        """A request that changes nothing: whichever way its answer is lost is the same."""
        if self._request(what) is not Reply.ARRIVES:
            raise BackendUnavailable("no answer")

    def start(self, inbox: Inbox) -> Reading:
        self._inbox = inbox
        return self.read(nodes=False)

    def scope(self, *, nodes: bool) -> tuple[str, ...]:
        return followed(self.node_id, nodes=nodes)

    def read(self, *, nodes: bool) -> Reading:
        self._ask("a read")
        reading = Reading(*self.etcd.read(self.scope(nodes=nodes)))
        if self._watch is None or self._watch.ended:
            self._watch = SimulatedWatch(self.etcd, self.scope(nodes=False), reading.revision)
        if self._nodes_watch is not None and self._nodes_watch.ended:
            self._nodes_watch = SimulatedWatch(self.etcd, (NODES,), reading.revision)
        return reading

    def survey(self) -> Reading:
        return Reading(*self.etcd.read(self.scope(nodes=True)))

    def follow_nodes(self) -> Reading:
        self.unfollow_nodes()
        self._ask("a read of all nodes")
        reading = Reading(*self.etcd.read((NODES,)))
        self._nodes_watch = SimulatedWatch(self.etcd, (NODES,), reading.revision)
        return reading

    def unfollow_nodes(self) -> None:
        watch, self._nodes_watch = self._nodes_watch, None
        if watch is not None and watch.interrupted and not any(self._interrupted()):
            self._tell(Resumed())

    def commit(self, commit: Commit) -> CommitResult:
        self._checks(commit)
        lease = self.lease
        try:
            reply = self._request(commit.step)
            if reply is Reply.LATE:
                self.network.late.append((commit.step, lambda: self._arrive_late(commit, lease)))
                raise BackendUnavailable("no answer", maybe=True)
            answer = self.etcd.commit(commit, lease)
        except fake_etcd.LeaseGone as e:
            raise LeaseGone("the lease is not there") from e
        if reply is Reply.ANSWER_LOST:
            raise BackendUnavailable("no answer", maybe=True)
        if not answer.succeeded:
            self.network.say(f"{self.node_id}: {commit.step} was overtaken")
            return CommitResult(succeeded=False)
        return CommitResult(True, self._facts(commit, answer))

    def _arrive_late(self, commit: Commit, lease: int | None) -> None:
        try:
            self.etcd.commit(commit, lease)
        except fake_etcd.LeaseGone:
            self.network.say("etcd: its lease is gone")

    def _facts(self, commit: Commit, answer: Answer) -> tuple[Fact, ...]:
        """As etcd's answer has them: no creation of a key that was there, and who has what was claimed."""
        created = {g.key for g in commit.guards if isinstance(g, Absent)}
        revision = answer.revision
        facts = []
        for o in commit.operations:
            if isinstance(o, Put):
                seen = Seen(o.record, revision, revision if o.key in created else 0)
                facts.append(Fact(o.key, revision, seen))
            elif not o.key.endswith("/"):
                facts.append(Fact(o.key, revision, None))
        if commit.claim is not None:
            holder = self.etcd.data[commit.claim.key].seen
            facts.append(Fact(commit.claim.key, holder.mod_revision, holder))
        return tuple(facts)

    def upkeep(self, *, leads: bool) -> float:
        if leads:
            self._ask("the upkeep of the run's lease")
        return _UPKEEP

    def store(self, prefix: str) -> Store:
        raise AssertionError("the simulated agents exchange nothing")

    def close(self) -> None:
        self._watch = self._nodes_watch = None
        self.lease = None

    # -- the lease --------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        self.lease = None
        reply = self._request("the wish for a lease")
        if reply is not Reply.LATE:
            lease = self.etcd.grant(self.network.clock() + LEASE)
            if reply is Reply.ARRIVES:
                self.lease, self._lease_ends = lease, self.network.clock() + LEASE
                return
        raise BackendUnavailable("no answer", maybe=True)

    def lease_lives(self) -> bool:
        if self.lease is None:
            return False
        self._ask("the question for its lease")
        return self.lease in self.etcd.leases

    def drop_lease(self) -> bool:
        if self.lease is None:
            return True
        lease, self.lease = self.lease, None
        self.network.meanwhile(self.node_id)
        if not self.reachable:
            return False
        self.etcd.revoke(lease, "dropped")
        return True

    def keep_alive(self) -> None:
        """The lease lasts from now on, where etcd hears of it and still has it."""
        now = self.network.clock()
        if self.reachable and self.lease is not None and self.lease in self.etcd.leases:
            self.etcd.keep_alive(self.lease, now + LEASE)
            self._lease_ends = now + LEASE

    @property
    def times(self) -> list[float]:
        """When a lease that cannot be kept alive is over for all that the node knows."""
        return [] if self.lease is None or self.reachable else [self._lease_ends]

    def doubt_lease(self) -> None:
        """The node gives its lease up for lost although etcd still holds it."""
        self._end_lease("no answer for too long", silent=True)

    def _lease_over(self) -> bool:
        if self.lease is None:
            return False
        if self.reachable:
            return self.lease not in self.etcd.leases
        return self.network.clock() >= self._lease_ends

    def _end_lease(self, reason: str, *, silent: bool) -> None:
        self.network.say(f"{self.node_id}: its lease has ended")
        self.lease = None
        self._tell(LeaseEnded(reason, silent=silent))

    # -- news -------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something that the node can be told."""
        return self._lease_over() or any(w.pending(reachable=self.reachable) for w in self._watches())

    def take_news(self, *, lease_first: bool = False, which: Callable[[int], int] = lambda _: 0) -> None:
        """Puts one piece of news into the inbox. `which` picks one of so many watches."""
        watches = [w for w in self._watches() if w.pending(reachable=self.reachable)]
        if self._lease_over() and (lease_first or not watches):
            if self.reachable:
                self._end_lease("etcd says so", silent=False)
            else:
                self._end_lease("etcd has not answered for as long as it lasts", silent=True)
        elif watches:
            news = watches[which(len(watches))].take(reachable=self.reachable)
            if isinstance(news, Missed):
                self.network.say(f"{self.node_id}: etcd has lost its data")
            # There is one word for all watches: none can come, until all can again.
            if news is not None and not (isinstance(news, Resumed) and any(self._interrupted())):
                self._tell(news)

    def miss_news(self) -> None:
        for watch in self._watches():
            self._tell(watch.miss())

    def hear_again(self, count: int) -> None:
        for watch in self._watches():
            watch.hear_again(count)

    def _watches(self) -> list[SimulatedWatch]:
        return [w for w in (self._watch, self._nodes_watch) if w is not None and not w.ended]

    def _interrupted(self) -> list[bool]:
        return [watch.interrupted for watch in self._watches()]

    def _tell(self, news: News) -> None:
        if self._inbox is not None:
            self._inbox.put(news)


class SimulatedWatch:
    """Tells events of `scope` from a revision on, one by one."""

    def __init__(self, etcd: FakeEtcd, scope: tuple[str, ...], after: int) -> None:
        self._etcd = etcd
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


class Etcd(Place):
    """Etcd: `records` is itself."""

    name = "etcd"
    settling = 6 * LEASE

    def access(self, node_id: str, *, clock: Clock, checks: Callable[[Commit], None]) -> Access:
        return SimulatedBackend(node_id, self.records, self.network, checks=checks)

    def revoke(self, lease: object) -> None:
        assert isinstance(lease, int)
        self.records.revoke(lease)

    def delete(self, key: str, why: str) -> None:
        self.records.delete(key, why)

    def wipe(self) -> None:
        self.records.wipe()

    def check_settled(self, held: Collection[object]) -> None:
        """Of its leases, etcd itself takes care."""

    def elect(self) -> None:
        """All leases last anew from now on."""
        self.network.say("etcd: has a new leader")
        for lease in self.records.leases:
            self.records.leases[lease] = self.network.clock() + LEASE

    def expire(self) -> None:
        self.records.expire(self.network.clock())
