"""Who is in the next world, and in which order.

Survivors keep the order of their ranks, so rank 0, and with it the master, stays where it was
whenever it can. Newcomers follow in order of arrival. Incumbents win: a newcomer takes no place
that a survivor needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .records import Member, Node, Round, Want
from .view import View


def member_of(node: Node) -> Member:
    """The part of a node's record that goes into the world."""
    return Member(
        node_id=node.node_id,
        name=node.name,
        address=node.address,
        hostname=node.hostname,
        local_world_size=node.local_world_size,
        role=node.role,
    )


def assemble(previous: Sequence[Member], candidates: Iterable[Node], *, limit: int) -> tuple[Member, ...]:
    """The world of at most `limit` members: survivors of `previous` in their order, then the rest.

    `candidates` are the nodes that are ready, in order of arrival.
    """
    ready = {node.node_id: node for node in candidates}
    survivors = [ready.pop(member.node_id) for member in previous if member.node_id in ready]
    return tuple(member_of(node) for node in [*survivors, *ready.values()])[:limit]


def joined_nodes(committed: Round, view: View) -> list[Node]:
    """The nodes that are ready for an open round, in order of arrival."""
    return [
        s.record
        for s in view.nodes.values()
        if s.record.want is Want.JOINING and s.record.round == committed.round
    ]
