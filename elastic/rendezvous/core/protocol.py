"""One node's whole half of the protocol.

It is told what the node learns and what its agent wants, and answers what to do next. It does
nothing itself: the loop (:mod:`elastic.rendezvous.loop`) carries out the answer, reports back, and
asks again until there is nothing left to do. Every answer is worked out from the current knowledge
alone, so that nothing is lost when a step fails half-way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from .actions import (
    Absent,
    Action,
    Commit,
    Delete,
    FollowNodes,
    Guard,
    HoldLease,
    Keep,
    Put,
    Rest,
    Unchanged,
    UnfollowNodes,
)
from .leader import decide
from .member import Self, Stance, Standing, Verdict, arrived, desired, judge, replaced
from .memory import Memory, hear, observe
from .records import Failure, Leader, Node, Outcome, Phase, Record, Round, Terminal
from .rules import Rules
from .view import CLOSED, LEADER, NODES, ROUND, Fact, Seen, View, node_key


class Protocol:
    """The state of one node. Feed it with the ``learn`` methods and the agent's wishes; ask `next_action`."""

    def __init__(self, template: Node, rules: Rules) -> None:
        self.rules = rules
        self.me = Self(template=template)
        self.view = View()
        self.ended: Terminal | None = None
        self.evicted = False
        self._closing: str | None = None
        self._memory = Memory()
        self._leased = False
        self._following = False
        self._kept = False  # whether this node's record was written under the lease that it holds
        self._joined_at: int | None = None  # the first revision of this node's record
        self._leaderless_since: float | None = None
        self._absence_from = -math.inf

    # -- what the node learns ---------------------------------------------------------------------

    def learn(self, facts: Iterable[Fact]) -> None:
        """News from a watch, or from this node's own transactions."""
        news = list(facts)
        if self._following:
            known = self.view.revisions
            self._memory = hear(self._memory, (f for f in news if f.revision > known.get(f.key, 0)))
        self.view = self.view.learn(news)
        self._note_joined()
        for fact in news:
            # A run of the same id may follow at once and delete the record: what was seen once counts.
            if fact.key == CLOSED and fact.seen is not None:
                self._note_end(fact.seen)

    def learn_all(self, revision: int, scope: Collection[str], found: Mapping[str, Seen[Record]]) -> None:
        """The result of a read of everything in `scope` at one revision."""
        self.view = self.view.read(revision, scope, found)
        self._note_joined()
        closed = self.view.entries.get(CLOSED)
        if closed is not None:
            self._note_end(closed)

    def _note_joined(self) -> None:
        """Take note of the own record, also where the answer to the write of it was lost.

        And of a successor: a node that slept while a newer agent of its name got into a newer world.
        """
        own = self.view.node(self.node_id)
        if own is not None and self._joined_at is None:
            self._joined_at = own.mod_revision
        self.evicted = self.evicted or replaced(self.me, self.view)

    def _note_end(self, seen: Seen[Record]) -> None:
        """The end of this node's run; not, heard of late, that of one before this node joined."""
        ours = self._closing is not None if self._joined_at is None else seen.mod_revision > self._joined_at
        if ours and isinstance(seen.record, Terminal) and self.ended is None:
            self.ended, self._closing = seen.record, None

    def lease_held(self) -> None:
        self._leased = True

    def lease_lost(self) -> None:
        """The lease is gone, and this node's keys with it, now or soon. They are written again."""
        self._leased = self._kept = False

    def followed(self, revision: int, found: Mapping[str, Seen[Record]]) -> None:
        """The node records have been read, and news of them follows."""
        self._following = True
        self.learn_all(revision, (NODES,), found)

    def forget(self) -> None:
        """etcd lost its data: nothing that was known of it holds any more, and revisions count anew."""
        self._keep_finished()
        self.view = View()
        self._memory = Memory()
        self._leased = self._kept = self._following = False
        self._joined_at = None if self._joined_at is None else 0

    def _keep_finished(self) -> None:
        """Who is done and gone tells it to nobody again: it goes into the record that may be restored."""
        seen, world = self.view.round, self.me.world
        if seen is None or world is None:
            return
        if (seen.record.round, seen.record.world) == (world.round, world.world):
            self.me = replace(self.me, world=replace(world, finished=seen.record.finished))

    def backend_away(self, now: float) -> None:
        """The backend gave no answer up to now. Others may take longer to get through to it again."""
        self._absence_from = now + self.rules.return_grace

    def unfollowed(self) -> None:
        self._following = False
        self.view = self.view.without_nodes(self.node_id)
        self._memory = Memory()

    def evict(self) -> bool:
        """This node's record was deleted although its lease lives: somebody wants it to go.

        It counts only for a record that was written under that lease: one of a lease before went with it.
        Returns whether it did.
        """
        self.evicted = self.evicted or self._kept
        return self._kept

    # -- what the agent wants ---------------------------------------------------------------------

    def join(self, *, master_port: int | None = None) -> None:
        """The workers are stopped; take part in the next round that this node has not run.

        `master_port` is the port that this node offers for that round, should it become rank 0.
        """
        template = self.me.template
        if master_port is not None:
            template = replace(template, master_port=master_port)
        self._take(replace(self.me, template=template, stance=Stance.JOINING, world=None))

    def run(self, world: Round) -> None:
        """The agent has been given this world, and starts its workers."""
        self._take(
            replace(self.me, stance=Stance.RUNNING, round=world.round, world=world, cause="", failure=None)
        )

    def regroup(self, cause: str, failure: Failure | None = None) -> None:
        """The workers of the current world must start anew; they are being stopped."""
        self._take(replace(self.me, stance=Stance.STOPPING, cause=cause, failure=failure))

    def succeed(self) -> None:
        """All workers have succeeded."""
        self._take(replace(self.me, stance=Stance.DONE))

    def drain(self, cause: str) -> None:
        """This node will leave as soon as its workers have saved; the others are told, so theirs do too."""
        self._take(replace(self.me, draining=True, cause=cause))

    def leave(self, cause: str) -> None:
        self.me = replace(self.me, stance=Stance.LEAVING, cause=cause)

    def close(self, reason: str) -> None:
        """End the job for everybody. One that has ended stays as it is, and no later one is ended."""
        if self.view.closed is None and self.ended is None:
            self._closing = reason

    def _take(self, me: Self) -> None:
        """Whoever leaves does nothing else any more, whatever order its agent's threads wished in."""
        if self.me.stance is not Stance.LEAVING:
            self.me = me

    # -- what it all means ------------------------------------------------------------------------

    @property
    def node_id(self) -> str:
        return self.me.template.node_id

    @property
    def following(self) -> bool:
        """Whether news of all nodes comes in."""
        return self._following

    @property
    def leads(self) -> bool:
        leader = self.view.leader
        return leader is not None and leader.record.node_id == self.node_id

    @property
    def registered(self) -> bool:
        """Whether etcd holds the record that this node should have, under a living lease."""
        return self._leased and self._record_differs() is None

    @property
    def world(self) -> Round | None:
        """The world that a joining node was waiting for, once it is formed."""
        return None if self.ended is not None or self.refusal() is not None else arrived(self.me, self.view)

    @property
    def verdict(self) -> Verdict:
        """What the shared state means for the workers that this node runs."""
        if self.ended is not None:
            return Verdict(Standing.CLOSED, self.ended.reason, self.ended)
        if self.evicted:
            return Verdict(
                Standing.EVICTED,
                "this node's record was deleted, or a newer agent of its name took its place",
            )
        return judge(self.me, self.view)

    def refusal(self) -> Terminal | str | None:
        """Why a node that has been in no world yet may be in none: its job has ended, or specs clash."""
        closed, seen = self.view.closed, self.view.round
        if closed is not None and self._joined_at is None:
            same_job = self.rules.job_token != "" and closed.record.job_token == self.rules.job_token
            return closed.record if same_job else None
        if self.me.round > 0 or seen is None or not self._run_lives(seen):
            return None
        theirs, ours = seen.record, self.rules
        if (theirs.min_nodes, theirs.max_nodes) == (ours.min_nodes, ours.max_nodes):
            return None
        return (
            f"a job with this id runs with --nnodes={theirs.min_nodes}:{theirs.max_nodes}, and this agent "
            f"was started with --nnodes={ours.min_nodes}:{ours.max_nodes}; use the same value, or another "
            "--rdzv-id"
        )

    def _run_lives(self, seen: Seen[Round]) -> bool:
        """Whether the round is of a run that lives, as far as can be seen, not one left behind."""
        leader = self.view.leader
        if leader is None:
            return False
        members = {member.node_id for member in seen.record.world}
        if self.leads:
            return not members.isdisjoint(self.view.nodes)
        return leader.record.node_id in members or seen.mod_revision > leader.create_revision

    def next_action(self, now: float) -> Action:
        """What to do next. Ask again after it was done, or after anything was learnt."""
        if self._closing is not None and self.view.closed is None:
            return self._close(self._closing)
        if self._out:
            return self._unfollow() or Rest()
        if not self._leased:
            return HoldLease()
        if self._joined_at is None and self.view.closed is not None:
            return self._new_incarnation(self.view.closed)
        record = self._record_differs()
        if record is not None:
            return self._register(record)
        if self.view.leader is None:
            return self._campaign(now)
        self._leaderless_since = None
        if not self.leads:
            return self._unfollow() or Rest()
        if not self._following:
            return FollowNodes()
        self._memory = observe(self._memory, self.view, self.rules, now, absence_from=self._absence_from)
        return decide(
            self.node_id,
            self.view,
            memory=self._memory,
            rules=self.rules,
            now=now,
            running=self.me.world,
        )

    def committed(self, commit: Commit) -> None:
        """A transaction of this node went through."""
        if any(isinstance(o, Put) and isinstance(o.record, Node) for o in commit.operations):
            self._kept = True

    @property
    def _out(self) -> bool:
        """Whether this node has no part to play: not yet, or no more."""
        gone = self.me.stance is Stance.LEAVING and self.view.node(self.node_id) is None
        return gone or self.me.stance is Stance.ABSENT or self.evicted or self.ended is not None

    # -- steps ------------------------------------------------------------------------------------

    def _record_differs(self) -> Node | None:
        wanted = desired(self.me, self.view)
        known = self.view.node(self.node_id)
        return None if self._kept and known is not None and known.record == wanted else wanted

    def _register(self, record: Node) -> Commit:
        key = node_key(record.node_id)
        known = self.view.node(record.node_id)
        # The second guard: a write that was delayed for long must not undo a later one.
        guards: list[Guard] = [
            Absent(CLOSED),
            Absent(key) if known is None else Unchanged(key, known.mod_revision),
        ]
        if not self._kept and self.me.round > 0:
            # Who comes back must know the newest world: there may be a successor in it.
            guards.append(_unchanged(self.view.round))
        claim = None
        if self.view.leader is None and self.me.stance is not Stance.LEAVING:
            claim = Put(LEADER, Leader(node_id=record.node_id), Keep.NODE)
        return Commit(
            step=record.want.value.lower(),
            why=f"{record.want.value.lower()} round {record.round}",
            guards=tuple(guards),
            operations=(Put(key, record, Keep.NODE),),
            claim=claim,
        )

    def _campaign(self, now: float) -> Action:
        """Try to lead: at once for the lowest rank, later for each further one, so that one try is usual."""
        if self.me.stance is Stance.LEAVING:
            return self._unfollow() or Rest()
        if self._leaderless_since is None:
            self._leaderless_since = now
        seen = self.view.round
        place = 0
        if seen is not None:
            rank = seen.record.rank_of(self.node_id)
            place = len(seen.record.world) if rank is None else rank
        due = self._leaderless_since + min(place * self.rules.campaign_step, self.rules.campaign_limit)
        if now < due:
            return Rest(due)
        return Commit(
            step="campaign",
            why="nobody leads",
            guards=(Absent(LEADER), Absent(CLOSED)),
            operations=(Put(LEADER, Leader(node_id=self.node_id), Keep.NODE),),
        )

    def _new_incarnation(self, closed: Seen[Terminal]) -> Commit:
        """Begin anew after a run of the same id that has ended. Round numbers go on."""
        seen = self.view.round
        before = closed.record if seen is None else seen.record
        opened = Round(
            incarnation=before.incarnation + 1,
            round=before.round + 1,
            phase=Phase.OPEN,
            min_nodes=self.rules.min_nodes,
            max_nodes=self.rules.max_nodes,
            cause=f"a new run, after one that {closed.record.outcome.value.lower()}",
        )
        return Commit(
            step="incarnate",
            why=opened.cause,
            guards=(
                Unchanged(CLOSED, closed.mod_revision),
                _unchanged(seen),
            ),
            operations=(Delete(CLOSED), Put(ROUND, opened, Keep.RETENTION)),
        )

    def _close(self, reason: str) -> Commit:
        seen = self.view.round
        terminal = Terminal(
            outcome=Outcome.CLOSED,
            reason=reason,
            exit_code=0,
            incarnation=1 if seen is None else seen.record.incarnation,
            round=0 if seen is None else seen.record.round,
            node_id=self.node_id,
            job_token=self.rules.job_token,
        )
        return Commit(
            step="close",
            why=reason,
            # The second guard: it must not end a later run than the one that this node knows.
            guards=(Absent(CLOSED), _unchanged(seen)),
            operations=(Put(CLOSED, terminal, Keep.TERMINAL),),
        )

    def _unfollow(self) -> Action | None:
        return UnfollowNodes() if self._following else None


def _unchanged(seen: Seen[Round] | None) -> Guard:
    """The round is still the one that was seen."""
    return Absent(ROUND) if seen is None else Unchanged(ROUND, seen.mod_revision)
