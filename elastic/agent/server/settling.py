"""Settles a worker group into a world: its ranks and its master, from what the rendezvous found."""

from __future__ import annotations

import logging

from elastic.rendezvous import RendezvousInfo

from .ranks import WorkerRanks, worker_ranks
from .spec import Worker, WorkerGroup

log = logging.getLogger("elastic.agent")


def settle(group: WorkerGroup, info: RendezvousInfo) -> tuple[WorkerRanks, ...]:
    """Write the world into the group, say so, and return the ranks of its workers by local rank."""
    ranks = worker_ranks(info.participants, info.rank)
    spec, bootstrap = group.spec, info.bootstrap_store_info
    group.store, group.round = info.store, info.round
    group.group_rank, group.group_world_size = info.rank, info.world_size
    group.master_addr = spec.master_addr or bootstrap.master_addr
    group.master_port = spec.master_port or bootstrap.master_port
    group.workers = [
        Worker(
            local_rank=r.local_rank,
            global_rank=r.rank,
            role_rank=r.role_rank,
            world_size=r.world_size,
            role_world_size=r.role_world_size,
        )
        for r in ranks
    ]
    log.info(
        "round %d: node %d of %d (%s), workers %d-%d of %d, master %s:%d",
        info.round,
        info.rank,
        info.world_size,
        " ".join(member.name for member in info.participants),
        ranks[0].rank,
        ranks[-1].rank,
        ranks[0].world_size,
        group.master_addr,
        group.master_port,
    )
    return ranks
