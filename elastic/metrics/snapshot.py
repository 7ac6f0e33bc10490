"""What an agent's metrics are at one moment: plain values. Pure."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

ETCD_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the durations of requests to etcd, in seconds."""
RENDEZVOUS_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bounds of the durations of a rendezvous, in seconds."""
WORKER_STATES = ("unknown", "init", "healthy", "unhealthy", "stopped", "succeeded", "failed")
"""The states that a worker is counted under: those of a worker group, in lower case."""


class RestartCause(str, enum.Enum):
    """Why workers are stopped to be started anew. A closed set: each is a time series."""

    WORKER_FAILED = "worker_failed"
    """A worker of this node failed."""
    WORKER_STUCK = "worker_stuck"
    """A worker of this node was found stuck or unhealthy."""
    PEER_FAILED = "peer_failed"
    """A worker of another node failed."""
    NODE_JOINED = "node_joined"
    """Nodes that waited are let in."""
    NODE_LEFT = "node_left"
    """A node said that it leaves."""
    NODE_LOST = "node_lost"
    """A node is gone without a word."""
    LEASE_LOST = "lease_lost"
    """This node lost its lease, and the world went on without it."""
    REQUESTED = "requested"
    """Somebody asked for it."""
    OTHER = "other"
    """A newer round, for a reason that is none of these."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Durations, counted by size. `counts` has one more entry than `bounds`, for all beyond the last."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Distribution:
        """Nothing counted yet."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def plus(self, value: float) -> Distribution:
        """With one more. A value that is a bound counts below it."""
        place = bisect_left(self.bounds, value)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Distribution(self.bounds, counts, self.total + value)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What does not change while an agent runs. `lease_ttl` is seconds, 0 where there is no lease."""

    run_id: str
    node: str
    node_id: str = ""
    role: str = "default"
    rdzv_backend: str = ""
    min_nodes: int = 1
    max_nodes: int = 1
    lease_ttl: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment. Durations are seconds; those that go on are counted up to this moment."""

    facts: JobFacts
    in_world: bool = False
    round: int = 0
    world_size: int = 0
    nodes: int = 0
    waiting: int = 0
    spares: int = 0
    healthy: bool = True
    workers: Mapping[str, int] = field(default_factory=dict)
    durations: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    worlds_entered: int = 0
    restarts: Mapping[RestartCause, int] = field(default_factory=dict)
    rendezvous: Distribution = field(default_factory=lambda: Distribution.empty(RENDEZVOUS_BOUNDS))
    lease_age: float | None = None
    leases_lost: int = 0
    etcd_away: bool = False
    etcd_outages: int = 0
    etcd_away_for: float = 0.0
    etcd_requests: Mapping[str, Distribution] = field(default_factory=dict)
    etcd_failures: Mapping[str, int] = field(default_factory=dict)
    training: float = 0.0
    lost: float = 0.0
