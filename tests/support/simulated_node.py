"""One simulated node: the real protocol, a small shell around it, and a model of an agent on top.

The shell does what the real one does, one step at a time: it carries out what the protocol asks for,
learns its own writes, reads again where a guard failed or an answer was lost, and finds out from
etcd why its own record vanished. It decides nothing. The agent runs "workers" that are a number: the
round that they belong to.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic.rendezvous.core.actions import Commit, FollowNodes, HoldLease, Put, Rest, UnfollowNodes
from elastic.rendezvous.core.invariants import Violation
from elastic.rendezvous.core.member import Stance, Standing
from elastic.rendezvous.core.protocol import Protocol
from elastic.rendezvous.core.records import Failure, Node, Round, Want
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import CLOSED, LEADER, NODES, ROUND, Fact, node_key
from support.fake_etcd import Answer, FakeEtcd, LeaseGone, in_scope

LEASE = 10.0
_STARTS_WORKERS_ANEW = (Want.JOINING, Want.WAITING, Want.SPARE)


class Reply(enum.Enum):
    """What becomes of one transaction on the network."""

    ARRIVES = "it is applied, and the answer arrives"
    LOST = "it is not applied, and no answer arrives"
    ANSWER_LOST = "it is applied, and no answer arrives"
    LATE = "it is applied later, and no answer arrives"


@dataclass(slots=True)
class Network:
    """How a node reaches etcd: `reply` is asked for each transaction; `late` takes those to apply later."""

    etcd: FakeEtcd
    reply: Callable[[], Reply]
    given: Callable[[str, Round], None]
    say: Callable[[str], None]
    late: list[tuple[Commit, int | None]] = field(default_factory=list)


class SimulatedNode:
    """A node that joins as soon as it is made. `gone` says why it went; None while it is there."""

    def __init__(self, node_id: str, name: str, *, rules: Rules, network: Network, max_restarts: int) -> None:
        template = Node(
            node_id=node_id,
            want=Want.JOINING,
            round=0,
            name=name,
            address=f"{node_id}.test",
            hostname=f"{name}.test",
            pid=1,
            local_world_size=1,
            role="default",
            master_port=29500,
        )
        self.node_id = node_id
        self.name = name
        self.network = network
        self.max_restarts = max_restarts
        self.protocol = Protocol(template, rules)
        self.protocol.join()
        self.workers: int | None = None
        self.succeeded: int | None = None
        self.gone: str | None = None
        self.lease: int | None = None
        self.paused = False
        self.cut = False
        self.due: float | None = None
        self.resting = False
        self._started = False
        self._reread = False
        self._cursor = 0
        self._nodes_cursor: int | None = None
        self._history = network.etcd.history

    # -- what the world can do with it ------------------------------------------------------------

    @property
    def reachable(self) -> bool:
        return self.gone is None and not self.paused and not self.cut

    @property
    def has_news(self) -> bool:
        """Whether a watch event, or the news that the lease has ended, is there to be taken."""
        if not self.reachable or not self._started:
            return False
        etcd = self.network.etcd
        return (
            self._history != etcd.history
            or self._cursor < len(etcd.log)
            or (self._nodes_cursor is not None and self._nodes_cursor < len(etcd.log))
            or (self.lease is not None and self.lease not in etcd.leases)
        )

    def take_news(self, *, lease_first: bool = False) -> None:
        """Takes one event of one watch; or else the keep-alive's news that the lease has ended."""
        etcd = self.network.etcd
        self.resting = False
        if self._history != etcd.history:
            self._notice_wipe()
        elif self.lease is not None and self.lease not in etcd.leases and (lease_first or not self._events()):
            self._lose_lease()
        elif self._events():
            nodes_first = self._nodes_cursor is not None and self._nodes_cursor <= self._cursor
            if nodes_first and self._nodes_cursor is not None:
                fact = etcd.log[self._nodes_cursor]
                self._nodes_cursor += 1
                if in_scope(fact.key, (NODES,)):
                    self._learn([fact])
            else:
                fact = etcd.log[self._cursor]
                self._cursor += 1
                if in_scope(fact.key, self._scope(nodes=False)):
                    self._learn([fact])

    def keep_alive(self, now: float) -> None:
        if self.reachable and self.lease in self.network.etcd.leases and self.lease is not None:
            self.network.etcd.keep_alive(self.lease, now + LEASE)

    def miss_news(self) -> None:
        """The watch has fallen so far behind that etcd has dropped what it missed: read everything again."""
        self._cursor = len(self.network.etcd.log)
        self._nodes_cursor = None if self._nodes_cursor is None else self._cursor
        self._reread = True
        self.resting = False

    def hear_again(self, count: int) -> None:
        """The watch is resumed from an earlier revision, and tells the last events again."""
        self._cursor = max(0, self._cursor - count)
        if self._nodes_cursor is not None:
            self._nodes_cursor = max(0, self._nodes_cursor - count)

    def doubt_lease(self) -> None:
        """The node gives its lease up for lost although etcd still holds it."""
        self._lose_lease()

    def crash(self) -> None:
        self.workers = None
        self.gone = "crashed"

    # -- one step of the shell --------------------------------------------------------------------

    def act(self, now: float) -> None:
        """Carries out one action of the protocol; `resting` says that there is none now."""
        if not self.reachable:
            return
        if self._history != self.network.etcd.history:
            self._notice_wipe()
        if not self._started or self._reread:
            self._read()
            return
        if self.protocol.me.stance is Stance.JOINING and self._refused():
            return
        action = self.protocol.next_action(now)
        if isinstance(action, Rest):
            self.resting, self.due = True, action.until
            if self.protocol.me.stance is Stance.LEAVING:
                self._end("left")
        elif isinstance(action, HoldLease):
            self.lease = self.network.etcd.grant(now + LEASE)
            self.protocol.lease_held()
        elif isinstance(action, FollowNodes):
            revision, found = self.network.etcd.read((NODES,))
            self._nodes_cursor = len(self.network.etcd.log)
            self._vanishing(lambda: self.protocol.followed(revision, found))
        elif isinstance(action, UnfollowNodes):
            self._nodes_cursor = None
            self.protocol.unfollowed()
        else:
            self._perform(action)

    def _refused(self) -> bool:
        refusal = self.protocol.refusal()
        if refusal is None:
            return False
        self._end(f"refused: {refusal if isinstance(refusal, str) else refusal.reason}")
        return True

    def _perform(self, commit: Commit) -> None:
        self._check_s5(commit)
        etcd = self.network.etcd
        reply = self.network.reply()
        if reply is not Reply.ARRIVES:
            self.network.say(f"{self.node_id}: no answer to {commit.step} ({reply.value})")
            self._reread = True
            if reply is Reply.LATE:
                self.network.late.append((commit, self.lease))
        if reply in (Reply.LOST, Reply.LATE):
            return
        try:
            answer = etcd.commit(commit, self.lease)
        except LeaseGone:
            if reply is Reply.ARRIVES:
                self._lose_lease()
            return
        if reply is Reply.ARRIVES:
            self._take_answer(commit, answer)

    def _take_answer(self, commit: Commit, answer: Answer) -> None:
        if not answer.succeeded:
            self.network.say(f"{self.node_id}: {commit.step} was overtaken")
            self._reread = True
            return
        self._learn(answer.wrote)
        self.protocol.committed(commit)

    def _check_s5(self, commit: Commit) -> None:
        if self.workers is None:
            return
        for put in commit.operations:
            record = put.record if isinstance(put, Put) else None
            if isinstance(record, Node) and record.want in _STARTS_WORKERS_ANEW:
                raise Violation(f"S5: {self.node_id} joins, and still runs workers of round {self.workers}")

    # -- what the shell learns --------------------------------------------------------------------

    def _scope(self, *, nodes: bool) -> tuple[str, ...]:
        return (ROUND, CLOSED, LEADER, node_key(self.node_id), *((NODES,) if nodes else ()))

    def _events(self) -> bool:
        end = len(self.network.etcd.log)
        return self._cursor < end or (self._nodes_cursor is not None and self._nodes_cursor < end)

    def _read(self) -> None:
        scope = self._scope(nodes=self.protocol.following)
        revision, found = self.network.etcd.read(scope)
        if not self._started:
            self._cursor = len(self.network.etcd.log)
        self._started, self._reread = True, False
        self._vanishing(lambda: self.protocol.learn_all(revision, scope, found))

    def _learn(self, facts: list[Fact] | tuple[Fact, ...]) -> None:
        mine = [f for f in facts if in_scope(f.key, self._scope(nodes=self.protocol.following))]
        self._vanishing(lambda: self.protocol.learn(mine))

    def _vanishing(self, learn: Callable[[], None]) -> None:
        before = self.protocol.view.node(self.node_id)
        learn()
        if before is None or self.protocol.view.node(self.node_id) is not None:
            return
        if self.protocol.me.stance in (Stance.ABSENT, Stance.LEAVING):
            return
        if self.lease in self.network.etcd.leases:
            self.protocol.evict()
        else:
            self._lose_lease()

    def _lose_lease(self) -> None:
        self.network.say(f"{self.node_id}: its lease has ended")
        self.lease = None
        self.resting = False
        self.protocol.lease_lost()

    def _notice_wipe(self) -> None:
        self.network.say(f"{self.node_id}: etcd has lost its data")
        self.lease = None
        self._history = self.network.etcd.history
        self._cursor, self._nodes_cursor = 0, None
        self._started = False
        self.resting = False
        self.protocol.forget()

    # -- the agent --------------------------------------------------------------------------------

    def agent(self) -> bool:
        """One step of the agent's own; whether there was one to make."""
        if self.gone is not None or self.paused:
            return False
        protocol, stance = self.protocol, self.protocol.me.stance
        verdict = protocol.verdict
        if verdict.standing in (Standing.CLOSED, Standing.EVICTED) and stance is not Stance.LEAVING:
            self.workers = None
            self._end("ended" if verdict.standing is Standing.CLOSED else "evicted")
            return True
        if stance is Stance.JOINING and protocol.world is not None:
            self._start(protocol.world)
        elif stance is Stance.STOPPING:
            self.workers = None
            protocol.join()
        elif stance in (Stance.RUNNING, Stance.DONE) and verdict.standing is Standing.SUPERSEDED:
            protocol.regroup(verdict.why)
        elif stance is Stance.RUNNING and self._nodes_wait():
            protocol.regroup("nodes wait")
        else:
            return False
        self.resting = False
        return True

    def _nodes_wait(self) -> bool:
        seen = self.protocol.view.round
        mine = seen is not None and seen.record.round == self.protocol.me.round
        return mine and seen is not None and seen.record.nodes_waiting > 0

    def _start(self, world: Round) -> None:
        if self.workers is not None:
            raise Violation(f"S5: {self.node_id} is given round {world.round}, and runs round {self.workers}")
        self.network.given(self.node_id, world)
        self.workers = world.round
        self.protocol.run(world)

    @property
    def running(self) -> bool:
        return self.protocol.me.stance is Stance.RUNNING

    def fail(self, *, exit_code: int = 1, final: bool | None = None) -> None:
        """A worker fails. `final` defaults to what the agent's restart budget says."""
        world = self.protocol.me.world
        assert world is not None
        failure = Failure(
            round=world.round,
            rank=world.rank_of(self.node_id) or 0,
            local_rank=0,
            exit_code=exit_code,
            message=f"a worker of {self.name} failed with exit code {exit_code}",
            final=world.failures >= self.max_restarts if final is None else final,
        )
        self.protocol.regroup(failure.message, failure)
        self.resting = False

    def succeed(self) -> None:
        self.protocol.succeed()
        self.succeeded = self.workers
        self.resting = False

    def leave(self) -> None:
        self.workers = None
        self.protocol.leave("it was asked to")
        self.resting = False

    def close(self, reason: str) -> None:
        """A caller of the API closes the job."""
        self.protocol.close(reason)
        self.resting = False

    def _end(self, how: str) -> None:
        self.network.say(f"{self.node_id}: {how}")
        self.workers = None
        self.gone = how
        if self.lease is not None and not self.cut:
            self.network.etcd.revoke(self.lease, how.split(":", maxsplit=1)[0])
