"""What a leader remembers between decisions, beyond what the records say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .formation import joined_nodes
from .records import Node, Phase, Want
from .rules import Rules
from .view import Fact, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a leader remembers between decisions: times on its own clock, and goodbyes it has heard.

    It may be lost at any time (a new leader starts with none); decisions then come later, and are the same.
    That a member of a formed world which is gone had been done, the round's record says as well.
    """

    round: int = 0
    phase: Phase | None = None
    missing_since: Mapping[str, float] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()
    reported: Mapping[str, int] = field(default_factory=dict)
    ready_since: float | None = None
    waiting: frozenset[str] = frozenset()
    waiting_since: float = 0.0
    waiting_first: float = 0.0


def observe(
    memory: Memory, view: View, rules: Rules, now: float, *, absence_from: float = -math.inf
) -> Memory:
    """The memory after a look at the view. No member is missing since earlier than `absence_from`."""
    seen = view.round
    if seen is None:
        return Memory()
    committed = seen.record
    if (memory.round, memory.phase) != (committed.round, committed.phase):
        # What was heard of a formed world matters until the next one is formed.
        same_world = committed.phase is Phase.OPEN and memory.round == committed.round - 1
        memory = Memory(
            round=committed.round,
            phase=committed.phase,
            missing_since=memory.missing_since if same_world else {},
            left=memory.left if same_world else frozenset(),
            done=memory.done if same_world else frozenset(),
            reported=memory.reported if same_world else {},
        )
    nodes = view.nodes
    ids = {member.node_id for member in committed.world}
    present = {i for i in ids if i in nodes and nodes[i].record.want is not Want.LEAVING}
    left = memory.left | {i for i in ids if i in nodes and nodes[i].record.want is Want.LEAVING}
    names = {s.record.name for s in nodes.values()}
    left |= {m.node_id for m in committed.world if m.node_id not in nodes and m.name in names}  # replaced
    known_done = memory.done | committed.finished_ids
    done = (known_done - present) | {i for i in present if nodes[i].record.want is Want.DONE}
    missing = {i: max(memory.missing_since.get(i, now), absence_from) for i in sorted(ids - present - left)}
    waiting = frozenset(i for i, s in nodes.items() if i not in ids and s.record.want is Want.WAITING)
    enough = committed.phase is Phase.OPEN and len(joined_nodes(committed, view)) >= rules.min_nodes
    return replace(
        memory,
        missing_since=missing,
        left=left,
        done=done,
        # The revision of the first report: a node's record is written again once its workers have stopped.
        reported={
            i: memory.reported.get(i, nodes[i].mod_revision)
            for i in sorted(present)
            if nodes[i].record.failure is not None
        },
        ready_since=None if not enough else now if memory.ready_since is None else memory.ready_since,
        waiting=waiting,
        waiting_since=memory.waiting_since if waiting <= memory.waiting else now,
        waiting_first=memory.waiting_first if memory.waiting else now,
    )


def hear(memory: Memory, news: Iterable[Fact]) -> Memory:
    """The memory after news of nodes, each newer than what was known.

    A node may say something and go before the next look at the view; what it said counts all the same.
    """
    left, done = set(memory.left), set(memory.done)
    for record in (fact.seen.record for fact in news if fact.seen is not None):
        if not isinstance(record, Node):
            continue
        if record.want is Want.LEAVING:
            left.add(record.node_id)
        elif record.want is Want.DONE:
            done.add(record.node_id)
        else:
            done.discard(record.node_id)
    return replace(memory, left=frozenset(left), done=frozenset(done))
