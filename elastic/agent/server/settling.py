"""Settles a worker group into a world: its ranks, its master and its workers' environments."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from elastic.rendezvous import RendezvousInfo

from .environment import JobFacts, worker_environment
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


def environments(
    group: WorkerGroup,
    info: RendezvousInfo,
    *,
    ranks: Iterable[WorkerRanks],
    shutdown_timeout: float,
    node_failures: int,
    inherited: Mapping[str, str],
) -> dict[int, dict[str, str]]:
    """What each worker's environment has, in a world that the group was settled into, by local rank."""
    spec = group.spec
    facts = JobFacts(
        run_id=spec.rdzv_handler.get_run_id(),
        round=info.round,
        node_id=spec.rdzv_handler.node_id,
        node_rank=info.rank,
        node_count=info.world_size,
        local_world_size=spec.local_world_size,
        role=spec.role,
        master_addr=group.master_addr or "",
        master_port=group.master_port or 0,
        failures=info.failures,
        max_restarts=spec.max_restarts,
        uses_agent_store=spec.rdzv_handler.use_agent_store,
        shutdown_timeout=shutdown_timeout,
        node_failures=node_failures,
    )
    return {r.local_rank: worker_environment(facts, r, inherited) for r in ranks}
