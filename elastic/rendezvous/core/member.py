"""What a node's own record should say, and what the shared state means for its workers.

A node writes its own record and no other. Which one depends on two things only: what its agent is
doing (the *stance*) and the committed round. So a node that comes back from an outage, a lost
lease or a restart of etcd needs no special case: the record that should be there is worked out
anew, and written where it differs from the one that is.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from .records import Failure, Node, Round, Terminal, Want
from .view import View


class Stance(enum.Enum):
    """What this node's agent is doing."""

    ABSENT = "it has not joined, or has left"
    JOINING = "its workers are stopped and it waits for a world"
    RUNNING = "it runs the workers of a world"
    STOPPING = "it stops its workers, to join the next round"
    DONE = "its workers have succeeded"
    LEAVING = "it goes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Self:
    """This node: its record less what changes, its stance, and the last round whose workers it ran.

    ``world`` is the formed round of the workers that it runs now, if it runs any. ``draining``: it will leave
    as soon as these have saved.
    """

    template: Node
    stance: Stance = Stance.ABSENT
    round: int = 0
    world: Round | None = None
    cause: str = ""
    failure: Failure | None = None
    draining: bool = False


class Standing(enum.Enum):
    """What the shared state says of the world whose workers a node runs."""

    CURRENT = "it is the newest world"
    SUPERSEDED = "a newer round is open or formed"
    CLOSED = "the job has ended"
    EVICTED = "this node's record was deleted: it may take no further part"
    LOST = "the backend has been away for longer than this node may go on without it"


@dataclass(frozen=True, slots=True)
class Verdict:
    standing: Standing
    why: str = ""
    terminal: Terminal | None = None


def desired(me: Self, view: View) -> Node | None:
    """The record that this node should have; None for none."""
    seen = view.round
    committed = None if seen is None else seen.record
    base = replace(me.template, cause=me.cause, failure=me.failure, draining=me.draining)
    if me.stance is Stance.ABSENT:
        return None
    if me.stance is Stance.LEAVING:
        return replace(base, want=Want.LEAVING, round=me.round)
    if me.stance is Stance.STOPPING:
        return replace(base, want=Want.STOPPING, round=_next_open(me, committed))
    if me.stance is Stance.JOINING:
        return _joining(me, base, committed)
    want = Want.ACTIVE if me.stance is Stance.RUNNING else Want.DONE
    known = view.node(me.template.node_id)
    rank = None if known is None else known.record.rank
    if committed is not None and committed.round == me.round:
        rank = committed.rank_of(me.template.node_id)
    return replace(base, want=want, round=me.round, rank=rank)


def _next_open(me: Self, committed: Round | None) -> int:
    """The round that a node which needs a new one speaks of."""
    if committed is None:
        return me.round + 1
    open_now = committed.round if not committed.formed else committed.round + 1
    return max(open_now, me.round + 1)


def _joining(me: Self, base: Node, committed: Round | None) -> Node:
    joins = replace(base, want=Want.JOINING)
    # A formed round older than this node's own is none to wait for: etcd lost its data since.
    if committed is None or not committed.formed or committed.round < me.round:
        return replace(joins, round=_next_open(me, committed))
    if committed.rank_of(base.node_id) is not None:
        # In the world: either it is the one this node waited for, or one that it has run already.
        return replace(joins, round=committed.round if committed.round > me.round else committed.round + 1)
    return replace(base, want=Want.SPARE if committed.full else Want.WAITING, round=committed.round)


def arrived(me: Self, view: View) -> Round | None:
    """The formed world that a joining node was waiting for, once it is there."""
    seen = view.round
    if me.stance is not Stance.JOINING or seen is None or not seen.record.formed:
        return None
    committed = seen.record
    if committed.round > me.round and committed.rank_of(me.template.node_id) is not None:
        return committed
    return None


def judge(me: Self, view: View) -> Verdict:
    """What the shared state means for the workers of the round that this node runs.

    A world is superseded only by a committed newer round, or by another world of its own number where
    etcd lost its data and others formed one first. That etcd is away, that this node's lease is lost
    or that the round record is missing changes nothing for healthy workers.
    """
    seen = view.round
    if seen is None or seen.record.round < me.round:
        return Verdict(Standing.CURRENT)
    if seen.record.round > me.round:
        return Verdict(Standing.SUPERSEDED, seen.record.cause)
    if me.world is not None and seen.record.formed and seen.record.world != me.world.world:
        return Verdict(
            Standing.SUPERSEDED, "the records were lost, and other nodes have formed this round anew"
        )
    return Verdict(Standing.CURRENT)


def replaced(me: Self, view: View) -> bool:
    """Whether another agent of this node's name is in a world that is newer than this node's own."""
    seen = view.round
    if (
        seen is None
        or not 0 < me.round < seen.record.round
        or seen.record.rank_of(me.template.node_id) is not None
    ):
        return False
    return any(member.name == me.template.name for member in seen.record.world)
