"""What the leader does next.

The rules, in the order in which they are tried:

1. The job is closed: nothing more happens.
2. There is no round record. Where the leader runs a world, it writes that world's record again;
   else it opens the first round, with a number later than any that a node remembers.
3. Two nodes have one name: the older is evicted, since the newer is its successor.
4. The round is open. Its record still names the world before, whose members are waited for.
   A round that a node has run already, that no member of the world before has lived to see or that was
   opened for other bounds was left behind: the next one is opened.

   a. Each member of that world has answered or is gone, and one of them reported a worker failure
      that no departure explains: it counts. If its node says that it was the last one, the job ends.
   b. A member that lives has not joined yet, or a newcomer has not and there is room: wait for it.
   c. Enough nodes joined: form the world; a first one only after the last call, unless it is full.

5. The round is formed. Where a node has run a later one, etcd lost its data: the next one is opened.

   a. All members that live are done, and one lives or none is missing: the job has succeeded.
   b. A member wants another round, leaves, or is gone for longer than the grace: open the next.
   c. Tell the world how many nodes wait, arrivals of a moment at once, unless members are done; how many
      of its members will leave; and, for a later leader, who is done and may not be there to say so.

A failure is not counted at once since a worker that loses its peers fails as well: whether a
failure is a cause or an effect is known only when every other member has been heard of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .actions import Absent, Action, Commit, Delete, Guard, Keep, Put, Rest, SameCreation, Unchanged
from .formation import assemble, joined_nodes
from .memory import Memory
from .records import Failure, Member, Node, Outcome, Phase, Round, Terminal, Trigger, Want
from .rules import Rules
from .view import CLOSED, LEADER, ROUND, STORE, View, history_key, node_key, store_prefix

_LONGEST_SETTLE = 5
"""Nodes that keep coming (one that crashes at its start, say) hold up the others for so many settle times."""


_GONE = {Trigger.LOST: "was lost", Trigger.LEFT: "left", Trigger.REPLACED: "was replaced"}


def decide(
    node_id: str, view: View, *, memory: Memory, rules: Rules, now: float, running: Round | None = None
) -> Action:
    """The leader's next action.

    `memory` must have observed this view. `running` is the formed round whose workers the leader
    itself runs, if it runs any.
    """
    if view.closed is not None:
        return Rest()
    lead = _Lead(node_id, view, memory, rules, now)
    seen = view.round
    if seen is None:
        return lead.open_first(running)
    return lead.evict() or (lead.formed(seen.record) if seen.record.formed else lead.gathering(seen.record))


@dataclass(frozen=True, slots=True)
class _Lead:
    node_id: str
    view: View
    memory: Memory
    rules: Rules
    now: float

    # -- rule 2 and 3 -----------------------------------------------------------------------------

    def open_first(self, running: Round | None) -> Action:
        if running is not None:
            # etcd lost its data under a living world. It is still the newest one: say so again.
            return self._write_round(running, step="restore")
        later = self._last_run() + 1
        return self._write_round(
            Round(
                incarnation=1,
                round=later,
                phase=Phase.OPEN,
                min_nodes=self.rules.min_nodes,
                max_nodes=self.rules.max_nodes,
                cause="the first round" if later == 1 else f"{self.rules.place} no longer knew the round",
                trigger=Trigger.START if later == 1 else Trigger.RECOVERY,
            ),
            step="open",
        )

    def evict(self) -> Action | None:
        newest: dict[str, str] = {}
        for node_id, seen in self.view.nodes.items():  # in order of arrival
            older = newest.get(seen.record.name)
            if older is not None:
                return self._commit(
                    step="evict",
                    why=f"node {older} has a successor of the same name, {node_id}",
                    operations=(Delete(node_key(older)),),
                    guarded_by_round=False,
                )
            newest[seen.record.name] = node_id
        return None

    # -- rule 4 -----------------------------------------------------------------------------------

    def gathering(self, committed: Round) -> Action:
        if self._last_run() >= committed.round:
            return self._open_next(committed, Trigger.RECOVERY, self._older_than_nodes)
        failure, unheard = self._first_failure(committed)
        if failure is not None and failure.final and not unheard:
            return self._finish(committed, Outcome.FAILED, failure.message, failure=failure)
        joined = joined_nodes(committed, self.view)
        ready = {node.node_id for node in joined}
        survivors = [m for m in committed.world if self._alive(m.node_id)]
        expected = [m.node_id for m in survivors if m.node_id not in ready]
        if expected:
            return Rest(self._next_grace(committed.world))
        if committed.world and not survivors:
            return self._open_next(committed, Trigger.LOST, "no node of the world before is left")
        if (committed.min_nodes, committed.max_nodes) != (self.rules.min_nodes, self.rules.max_nodes):
            return self._open_next(committed, Trigger.RECOVERY, "the run before had other bounds")
        limit = self.rules.max_nodes
        if len(joined) < limit and any(
            s.record.want in (Want.WAITING, Want.SPARE) for s in self.view.nodes.values()
        ):
            return Rest()
        if len(joined) < self.rules.min_nodes or self.memory.ready_since is None:
            return Rest()
        pause = self.rules.regroup if committed.world else self.rules.last_call
        due = self.memory.ready_since + pause
        if len(joined) < limit and self.now < due:
            return Rest(due)
        return self._form(committed, joined, counted=failure is not None)

    def _first_failure(self, committed: Round) -> tuple[Failure | None, bool]:
        """The first failure of the world before that no departure explains; whether a member is unheard of.

        First by the revision at which it was reported: the order in which things happened.
        """
        if committed.departed:
            return None, False
        reports: list[tuple[int, Failure]] = []
        unheard = False
        for member in committed.world:
            seen = self.view.node(member.node_id)
            if member.node_id in self.memory.done and not self._alive(member.node_id):
                continue
            if seen is None or seen.record.want is Want.LEAVING:
                if not self._alive(member.node_id):
                    return None, False
                unheard = True
            elif seen.record.round < committed.round:
                unheard = True
            elif seen.record.failure is not None and seen.record.failure.round == committed.round - 1:
                reported = self.memory.reported.get(member.node_id, seen.mod_revision)
                reports.append((reported, seen.record.failure))
        return (min(reports, key=lambda r: r[0])[1] if reports else None), unheard

    def _form(self, committed: Round, joined: list[Node], *, counted: bool) -> Action:
        # Workers that lost a peer may have been heard of before their peer was missed.
        trigger, cause = self._departure(committed) or (committed.trigger, committed.cause)
        world = assemble(committed.world, joined, limit=self.rules.max_nodes)
        first = next(node for node in joined if node.node_id == world[0].node_id)
        formed = replace(
            committed,
            phase=Phase.FORMED,
            world=world,
            master_addr=first.address,
            master_port=first.master_port,
            nodes_waiting=0,
            nodes_leaving=0,
            finished=(),
            failures=committed.failures + (1 if counted else 0),
            cause=cause,
            trigger=trigger,
        )
        n = formed.round
        forgotten: list[Put | Delete] = [Put(history_key(n), formed, Keep.RETENTION)]
        if n > self.rules.history:
            forgotten.append(Delete(history_key(n - self.rules.history)))
        if n > 2:
            forgotten.append(Delete(store_prefix(n - 2)))
        return self._write_round(formed, step="form", also=tuple(forgotten))

    # -- rule 5 -----------------------------------------------------------------------------------

    def formed(self, committed: Round) -> Action:
        nodes = self.view.nodes
        if self._last_run() > committed.round:
            return self._open_next(committed, Trigger.RECOVERY, self._older_than_nodes)
        if self._has_succeeded(committed):
            departure = self._departure(committed)
            who = f"all workers that are left have succeeded: {departure[1]}" if departure else ""
            return self._finish(committed, Outcome.SUCCEEDED, who or "all workers have succeeded")
        for member in committed.world:
            seen = nodes.get(member.node_id)
            if seen is not None and seen.record.round > committed.round:
                failure = seen.record.failure
                if failure is not None and failure.final and len(committed.world) == 1:
                    # There is nobody else to be heard of.
                    return self._finish(committed, Outcome.FAILED, failure.message, failure=failure)
                cause = seen.record.cause or f"{member.name} starts anew"
                return self._open_next(committed, _request(committed, failure), cause)
        departure = self._departure(committed)
        if departure:
            return self._open_next(committed, *departure)
        return self._announce(committed) or Rest(self._next_wakeup(committed))

    def _has_succeeded(self, committed: Round) -> bool:
        """Whether all members that live are done. Where none lives, all must have been: a run that was killed
        when some were done is no success for those who start it again."""
        members = {member.node_id for member in committed.world}
        alive = {node_id for node_id in members if self._alive(node_id)}
        return (alive or members) <= self.memory.done

    def _open_next(self, committed: Round, trigger: Trigger, cause: str) -> Action:
        """Open the round after this one. Where none of its world lives, the run that formed it is dead."""
        survivors = tuple(m for m in committed.world if self._alive(m.node_id))
        departed = [m for m in committed.world if m not in survivors and m.node_id not in self.memory.done]
        dead = bool(committed.world) and not survivors
        return self._write_round(
            Round(
                incarnation=committed.incarnation + 1 if dead else committed.incarnation,
                # Usually the next number. Not so where etcd was restored from a backup.
                round=max(committed.round, self._last_run()) + 1,
                phase=Phase.OPEN,
                min_nodes=self.rules.min_nodes,
                max_nodes=self.rules.max_nodes,
                world=survivors,
                departed=0 if dead else len(departed),
                failures=0 if dead else committed.failures,
                cause=cause,
                trigger=trigger,
            ),
            step="open",
        )

    def _announce(self, committed: Round) -> Action | None:
        room = max(0, self.rules.max_nodes - len(committed.world))
        count = 0 if self.memory.done else min(len(self.memory.waiting), room)
        if count > committed.nodes_waiting and count < room and self.now < self._settled():
            count = committed.nodes_waiting
        leaving = sum(1 for member in committed.world if self._drains(member.node_id))
        announced = replace(
            committed, nodes_waiting=count, nodes_leaving=leaving, finished=self._finished(committed)
        )
        return None if announced == committed else self._write_round(announced, step="announce")

    def _finished(self, committed: Round) -> tuple[int, ...]:
        """Ranks of members that are done and gone; the leader's own before it goes, since it may crash."""
        memory = self.memory
        gone = {self.node_id, *memory.left, *memory.missing_since}
        done = memory.done & gone
        return tuple(rank for rank, member in enumerate(committed.world) if member.node_id in done)

    # -- shared -----------------------------------------------------------------------------------

    def _last_run(self) -> int:
        """The last round that any known node has run; no later round may have an older number."""
        return max((_last_round(s.record) for s in self.view.nodes.values()), default=0)

    def _alive(self, node_id: str) -> bool:
        """Whether a member is there, or gone for too short a time to be lost."""
        if node_id in self.memory.left:
            return False
        since = self.memory.missing_since.get(node_id)
        return since is None or self.now < since + self.rules.rejoin_grace

    def _drains(self, node_id: str) -> bool:
        seen = self.view.node(node_id)
        return seen is not None and seen.record.draining

    @property
    def _older_than_nodes(self) -> str:
        return f"{self.rules.place} knew an older round than the nodes"

    def _departure(self, committed: Round) -> tuple[Trigger, str] | None:
        """Which member is gone that had not finished, and how; None for none."""
        for member in committed.world:
            if not self._alive(member.node_id) and member.node_id not in self.memory.done:
                trigger = self._how_gone(member)
                return trigger, f"{member.name} {_GONE[trigger]}"
        return None

    def _how_gone(self, member: Member) -> Trigger:
        if member.node_id not in self.memory.left:
            return Trigger.LOST
        nodes = self.view.nodes.items()
        replaced = any(s.record.name == member.name for i, s in nodes if i != member.node_id)
        return Trigger.REPLACED if replaced else Trigger.LEFT

    def _next_grace(self, world: tuple[Member, ...]) -> float | None:
        ends = [self.memory.missing_since[m.node_id] for m in world if m.node_id in self.memory.missing_since]
        later = [end + self.rules.rejoin_grace for end in ends if end + self.rules.rejoin_grace > self.now]
        return min(later, default=None)

    def _settled(self) -> float:
        """When arrivals are announced: once none has come for a while, or after a few such whiles."""
        longest = self.memory.waiting_first + _LONGEST_SETTLE * self.rules.settle
        return min(self.memory.waiting_since + self.rules.settle, longest)

    def _next_wakeup(self, committed: Round) -> float | None:
        times = [self._next_grace(committed.world)]
        if len(self.memory.waiting) > committed.nodes_waiting and self.now < self._settled():
            times.append(self._settled())
        return min((t for t in times if t is not None), default=None)

    def _finish(
        self, committed: Round, outcome: Outcome, reason: str, *, failure: Failure | None = None
    ) -> Action:
        terminal = Terminal(
            outcome=outcome,
            reason=reason,
            exit_code=0 if failure is None else failure.exit_code,
            incarnation=committed.incarnation,
            round=committed.round,
            node_id=self.node_id,
            job_token=self.rules.job_token,
            failure=failure,
        )
        return self._commit(
            step="close", why=reason, operations=(Put(CLOSED, terminal, Keep.TERMINAL), Delete(STORE))
        )

    def _write_round(self, record: Round, *, step: str, also: tuple[Put | Delete, ...] = ()) -> Action:
        return self._commit(
            step=step,
            why=f"round {record.round}: {record.cause}",
            operations=(Put(ROUND, record, Keep.RETENTION), *also),
        )

    def _commit(
        self,
        *,
        step: str,
        why: str,
        operations: tuple[Put | Delete, ...],
        guarded_by_round: bool = True,
    ) -> Action:
        """A transaction that only the leader gets through, and only if it knew the newest round."""
        leader, seen = self.view.leader, self.view.round
        guards: list[Guard] = [
            Absent(CLOSED),
            SameCreation(LEADER, 0 if leader is None else leader.create_revision),
        ]
        if guarded_by_round:
            guards.append(Absent(ROUND) if seen is None else Unchanged(ROUND, seen.mod_revision))
        return Commit(step=step, why=why, guards=tuple(guards), operations=operations)


def _request(committed: Round, failure: Failure | None) -> Trigger:
    """Why a member of a formed world asks for the next one."""
    if failure is not None:
        return Trigger.FAILURE
    if committed.nodes_waiting:
        return Trigger.ARRIVAL
    return Trigger.LEFT if committed.nodes_leaving else Trigger.REQUEST


def _last_round(node: Node) -> int:
    """The last round that a node is known to have run."""
    if node.want in (Want.ACTIVE, Want.DONE, Want.LEAVING):
        return node.round
    if node.want in (Want.JOINING, Want.STOPPING):
        return node.round - 1
    return 0
