"""The numbers that the protocol's decisions depend on. All durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One job's rules; the same on all its nodes.

    ``last_call``: how long a first formation that has reached ``min_nodes`` waits for more.
    ``regroup``: the same for later formations, once all live members have joined again.
    ``rejoin_grace``: how long a member's vanished record is a suspicion rather than a loss.
    ``return_grace``: how much longer it is one after the backend was away, since nodes do not all get
    through to it again at once.
    ``settle``: how long arrivals are gathered before the world is told that nodes wait.
    ``campaign_step``: how much later each rank tries to lead, so that few try at once.
    ``history``: how many formed rounds are kept for people to read.
    ``place``: what causes call the place where the records are kept.
    """

    min_nodes: int
    max_nodes: int
    last_call: float = 30.0
    regroup: float = 0.0
    rejoin_grace: float = 1.0
    return_grace: float = 5.0
    settle: float = 1.0
    campaign_step: float = 0.05
    campaign_limit: float = 1.0
    history: int = 64
    job_token: str = ""
    place: str = "etcd"
