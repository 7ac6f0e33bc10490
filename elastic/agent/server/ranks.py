"""The ranks of a node's workers, worked out from the world record alone.

Every node computes the same from the same record, so agents exchange nothing; nodes may have
different numbers of workers. Global ranks follow the order of the nodes; a role's ranks count the
workers of that role in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastic.rendezvous.core.records import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRanks:
    """Where one worker stands in the world."""

    local_rank: int
    rank: int
    world_size: int
    role_rank: int
    role_world_size: int


def worker_ranks(world: Sequence[Member], node_rank: int) -> tuple[WorkerRanks, ...]:
    """The ranks of the workers of the node at `node_rank`, by local rank."""
    me, before = world[node_rank], world[:node_rank]
    first = sum(m.local_world_size for m in before)
    role_first = sum(m.local_world_size for m in before if m.role == me.role)
    world_size = sum(m.local_world_size for m in world)
    role_world_size = sum(m.local_world_size for m in world if m.role == me.role)
    return tuple(
        WorkerRanks(
            local_rank=i,
            rank=first + i,
            world_size=world_size,
            role_rank=role_first + i,
            role_world_size=role_world_size,
        )
        for i in range(me.local_world_size)
    )
