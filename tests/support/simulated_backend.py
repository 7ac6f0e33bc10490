"""One node's way to the simulated etcd: the backend that the real shell is run over.

A call happens in no time at all, and its answer may be lost. News, of its watches and of its lease, is
put into the inbox piece by piece, when the driver of the world has it taken.
"""

from __future__ import annotations

from collections.abc import Callable

from elastic.rendezvous.backends.api import (
    BackendUnavailable,
    CommitResult,
    Inbox,
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
from support.fake_etcd import Answer
from support.simulated_network import Network, Reply, SimulatedWatch

LEASE = 10.0
_UPKEEP = 3600.0


class SimulatedBackend(MembershipBackend):
    """What one node has of etcd. `cut` is the state of its connection, `checks` is shown each commit."""

    def __init__(self, node_id: str, network: Network, *, checks: Callable[[Commit], None]) -> None:
        self.node_id = node_id
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
    def reachable(self) -> bool:
        return not self.cut and not self.network.down

    # -- calls ------------------------------------------------------------------------------------

    def _request(self, what: str) -> Reply:
        """What becomes of a request; raises where it cannot even be sent, or is lost."""
        self.network.before(self.node_id)
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
        reading = Reading(*self.network.etcd.read(self.scope(nodes=nodes)))
        if self._watch is None or self._watch.ended:
            self._watch = SimulatedWatch(self.network, self.scope(nodes=False), reading.revision)
        if self._nodes_watch is not None and self._nodes_watch.ended:
            self._nodes_watch = SimulatedWatch(self.network, (NODES,), reading.revision)
        return reading

    def survey(self) -> Reading:
        return Reading(*self.network.etcd.read(self.scope(nodes=True)))

    def follow_nodes(self) -> Reading:
        self.unfollow_nodes()
        self._ask("a read of all nodes")
        reading = Reading(*self.network.etcd.read((NODES,)))
        self._nodes_watch = SimulatedWatch(self.network, (NODES,), reading.revision)
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
                self.network.late.append((commit, lease))
                raise BackendUnavailable("no answer", maybe=True)
            answer = self.network.etcd.commit(commit, lease)
        except fake_etcd.LeaseGone as e:
            raise LeaseGone("the lease is not there") from e
        if reply is Reply.ANSWER_LOST:
            raise BackendUnavailable("no answer", maybe=True)
        if not answer.succeeded:
            self.network.say(f"{self.node_id}: {commit.step} was overtaken")
            return CommitResult(succeeded=False)
        return CommitResult(True, self._facts(commit, answer))

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
            holder = self.network.etcd.data[commit.claim.key].seen
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
            lease = self.network.etcd.grant(self.network.clock() + LEASE)
            if reply is Reply.ARRIVES:
                self.lease, self._lease_ends = lease, self.network.clock() + LEASE
                return
        raise BackendUnavailable("no answer", maybe=True)

    def lease_lives(self) -> bool:
        if self.lease is None:
            return False
        self._ask("the question for its lease")
        return self.lease in self.network.etcd.leases

    def drop_lease(self) -> bool:
        if self.lease is None:
            return True
        lease, self.lease = self.lease, None
        self.network.before(self.node_id)
        if not self.reachable:
            return False
        self.network.etcd.revoke(lease, "dropped")
        return True

    def keep_alive(self) -> None:
        """The lease lasts from now on, where etcd hears of it and still has it."""
        now = self.network.clock()
        if self.reachable and self.lease is not None and self.lease in self.network.etcd.leases:
            self.network.etcd.keep_alive(self.lease, now + LEASE)
            self._lease_ends = now + LEASE

    @property
    def lease_ends(self) -> float | None:
        """When a lease that cannot be kept alive is over for all that the node knows."""
        return None if self.lease is None or self.reachable else self._lease_ends

    def doubt_lease(self) -> None:
        """The node gives its lease up for lost although etcd still holds it."""
        self._end_lease("no answer for too long", silent=True)

    def _lease_over(self) -> bool:
        if self.lease is None:
            return False
        if self.reachable:
            return self.lease not in self.network.etcd.leases
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
