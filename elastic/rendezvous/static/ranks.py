"""A world whose nodes have ranks of their own: how a node is named after its rank, and who comes where.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from elastic.rendezvous.core.records import Member
from elastic.rendezvous.errors import RendezvousStateError

_NAME = re.compile(r"rank([0-9]+)@.+")


def node_name(rank: int, hostname: str) -> str:
    """The name of the node with that rank: an agent that is started again there takes its place."""
    return f"rank{rank}@{hostname}"


def in_order(world: Sequence[Member]) -> tuple[Member, ...]:
    """The members by their given ranks; RendezvousStateError where two have the same, or one has none."""
    ranked: dict[int, Member] = {}
    for member in world:
        match = _NAME.fullmatch(member.name)
        if match is None:
            raise RendezvousStateError(
                f"{member.name!r} is no node of a static rendezvous; use another --rdzv-id"
            )
        other = ranked.setdefault(int(match[1]), member)
        if other is not member:
            names = " and ".join(sorted((member.name, other.name)))
            raise RendezvousStateError(
                f"{names} were started with the same --node-rank={match[1]}; give each node its own"
            )
    return tuple(ranked[rank] for rank in sorted(ranked))
