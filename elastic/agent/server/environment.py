"""The environment of a worker: the complete set that torch's and tensorplay's own code reads.

The variables that are ours begin with ``ELASTIC_``. The rest carry the names and meanings that
workers know from torchrun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .ranks import WorkerRanks


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What all workers of a node share in one round."""

    run_id: str
    round: int
    node_id: str
    node_rank: int
    node_count: int
    local_world_size: int
    role: str
    master_addr: str
    master_port: int
    failures: int
    max_restarts: int
    uses_agent_store: bool
    shutdown_timeout: float
    node_failures: int = 0


def worker_environment(facts: JobFacts, ranks: WorkerRanks, inherited: Mapping[str, str]) -> dict[str, str]:
    """What a worker's environment has besides what it inherits from the agent."""
    return {
        "LOCAL_RANK": str(ranks.local_rank),
        "RANK": str(ranks.rank),
        "GROUP_RANK": str(facts.node_rank),
        "ROLE_RANK": str(ranks.role_rank),
        "ROLE_NAME": facts.role,
        "LOCAL_WORLD_SIZE": str(facts.local_world_size),
        "WORLD_SIZE": str(ranks.world_size),
        "GROUP_WORLD_SIZE": str(facts.node_count),
        "ROLE_WORLD_SIZE": str(ranks.role_world_size),
        "MASTER_ADDR": facts.master_addr,
        "MASTER_PORT": str(facts.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(facts.failures),
        "TORCHELASTIC_MAX_RESTARTS": str(facts.max_restarts),
        "TORCHELASTIC_RUN_ID": facts.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": str(facts.uses_agent_store),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": inherited.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        # etcd's password is the agent's alone.
        **({"ELASTIC_ETCD_PASSWORD": ""} if "ELASTIC_ETCD_PASSWORD" in inherited else {}),
        "ELASTIC_RUN_ID": facts.run_id,
        "ELASTIC_ROUND": str(facts.round),
        "ELASTIC_NODE_ID": facts.node_id,
        "ELASTIC_NODE_FAILURES": str(facts.node_failures),
        "ELASTIC_SHUTDOWN_TIMEOUT": f"{facts.shutdown_timeout:g}",
    }
