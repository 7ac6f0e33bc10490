"""What changed in the shared state, from what was known before and what is known now: one value a change.

Each carries the revision that orders it among the changes that all nodes tell of. Pure; who wants to hear of
changes subscribes to the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .records import Node, Round, Terminal, Want
from .view import NODES, Fact, View


@dataclass(frozen=True, slots=True)
class RoundOpened:
    """A new round gathers nodes: the world before it is superseded."""

    round: Round
    revision: int


@dataclass(frozen=True, slots=True)
class RoundFormed:
    """A round has its world."""

    round: Round
    revision: int


@dataclass(frozen=True, slots=True)
class JobClosed:
    """The job has ended."""

    terminal: Terminal
    revision: int


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node has registered. Only the node that leads tells of it."""

    node: Node
    revision: int


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node's record is gone. Only the node that leads tells of it. `said_goodbye`: else its lease ended."""

    node_id: str
    said_goodbye: bool
    cause: str
    revision: int


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """This node's lease is gone, and its records with it; it asks for another one."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """This node has a lease: its first, or another one."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """The backend has confirmed this node's lease."""


@dataclass(frozen=True, slots=True)
class BackendAway:
    """The backend counts as away. Workers run on."""

    reason: str


@dataclass(frozen=True, slots=True)
class BackendBack:
    """The backend answers again."""

    seconds: float
    """For how long it did not."""


@dataclass(frozen=True, slots=True)
class BackendAnswered:
    """A request to the backend was answered, or `failed`, after `seconds`."""

    operation: str
    seconds: float
    failed: bool = False


Change = (
    RoundOpened
    | RoundFormed
    | JobClosed
    | NodeJoined
    | NodeGone
    | LeaseLost
    | LeaseHeld
    | LeaseRenewed
    | BackendAway
    | BackendBack
    | BackendAnswered
)

Observer = Callable[[Change], None]
"""Is told of changes, from any thread, and must not block."""


def changes(before: View, after: View, facts: Iterable[Fact] = (), *, leads: bool) -> Iterator[Change]:
    """The changes from one view to the next, which came by these facts (none: by a read).

    `leads`: this node knows all nodes in both views, and is the one to tell of them.
    """
    was, now = before.round, after.round
    if now is not None and (was is None or _stage(was.record) != _stage(now.record)):
        kind = RoundFormed if now.record.formed else RoundOpened
        yield kind(now.record, now.mod_revision)
    closed = after.closed
    if closed is not None and (before.closed is None or before.closed.mod_revision != closed.mod_revision):
        yield JobClosed(closed.record, closed.mod_revision)
    if not leads:
        return
    goodbyes = {
        fact.key
        for fact in facts
        if fact.seen is not None
        and isinstance(fact.seen.record, Node)
        and fact.seen.record.want is Want.LEAVING
    }
    there, gone = after.nodes, before.nodes
    for node_id, seen in there.items():
        if node_id not in gone:
            yield NodeJoined(seen.record, seen.create_revision or seen.mod_revision)
    for node_id, seen in gone.items():
        if node_id not in there:
            key = NODES + node_id
            told = seen.record.want is Want.LEAVING or key in goodbyes
            cause = seen.record.cause if told else ""
            yield NodeGone(node_id, said_goodbye=told, cause=cause, revision=after.revisions.get(key, 0))


def missing(view: View) -> Iterator[NodeGone]:
    """Members of the world whose records were gone before this node led: whoever led then went with them."""
    committed = view.round
    for member in () if committed is None else committed.record.world:
        if member.node_id not in view.nodes:
            newest = max(view.revisions.values(), default=0)
            yield NodeGone(member.node_id, said_goodbye=False, cause="", revision=newest)


def _stage(record: Round) -> tuple[int, int, bool]:
    return record.incarnation, record.round, record.formed
