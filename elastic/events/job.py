"""The events of a job's life: one function for each thing that happens, from its facts to its `Event`.

Nothing is recorded here, and nothing is read but the clock that an event takes its time from; hand what is
returned to `elastic.events.record`. Names are ``elastic.<noun>.<what>`` and stay as they are. Every event has
all of these keys in its metadata, None where one says nothing:

====================  =====================================================================================
key                   meaning
====================  =====================================================================================
run_id                the job
round                 the round that it belongs to
node, node_id         the node that it is about: its name, and the id of this life of it
reporter              the name of the node whose agent says so
cause                 why, in a word or a sentence
revision              the etcd revision that orders it among the events of all nodes: its own, or, where
                      etcd has none for it, the newest that the reporter had heard of; None before that
state                 what it has come to, in one word; for agents and workers torch's words
duration_ms           how long it took, or had lasted, in milliseconds
hostname, role        of the agent that says so
rdzv_backend          the rendezvous backend
group_rank            the rank of the node in its world
global_rank           the rank of the worker
worker_id             the worker's process id, as text
agent_restarts        how often the agent has restarted its workers
total_run_time        whole seconds since the agent began
raw_error             the failure of a worker, as text
metadata              text that is a JSON object: group_world_size, entry_point, local_rank, role_rank,
                      role_world_size, exit_code, worker_pid
====================  =====================================================================================

Those from ``state`` on, and ``run_id``, are what torch's events have, with the same meaning, so that what
parses those parses these; their source is AGENT or WORKER, which both peers know. Ranks in ``metadata`` are
plain numbers, where torch has lists of one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from elastic.events.api import Event, EventMetadataValue, EventSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What all events of one agent have in common: its job, its node, and what it runs."""

    run_id: str
    node: str
    node_id: str
    hostname: str
    role: str = "default"
    rdzv_backend: str = "etcd"
    entry_point: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standpoint:
    """Where an agent stands when something happens: its round and place in it, and what it has been through.

    `total_run_time` is seconds. Before the first world there is neither round nor rank. `revision` is the
    newest of etcd that it has heard of, for events that have none of their own.
    """

    round: int | None = None
    revision: int | None = None
    group_rank: int | None = None
    group_world_size: int | None = None
    agent_restarts: int = 0
    total_run_time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """Which worker an event is about."""

    local_rank: int
    global_rank: int
    role_rank: int
    role_world_size: int
    pid: int | None = None


def world_formed(
    origin: Origin, at: Standpoint, *, cause: str, seconds: float, revision: int | None = None
) -> Event:
    """``elastic.world.formed``: this node is in a new world, after waiting for it for `seconds`."""
    return _agent("world.formed", "RENDEZVOUS", origin, at, cause=cause, seconds=seconds, revision=revision)


def world_superseded(origin: Origin, at: Standpoint, *, cause: str, revision: int | None = None) -> Event:
    """``elastic.world.superseded``: a newer round was opened; the workers of this one are stopped."""
    return _agent("world.superseded", "SUPERSEDED", origin, at, cause=cause, revision=revision)


def world_lost(origin: Origin, at: Standpoint, *, cause: str, revision: int | None = None) -> Event:
    """``elastic.world.lost``: this node may take no further part: it was evicted, or gave up."""
    return _agent("world.lost", "LOST", origin, at, cause=cause, revision=revision)


def node_joined(
    origin: Origin, at: Standpoint, *, node: str, node_id: str, cause: str = "", revision: int | None = None
) -> Event:
    """``elastic.node.joined``: a node registered; it is in no world yet."""
    return _node(
        "node.joined", "JOINED", origin, at, node=node, node_id=node_id, cause=cause, revision=revision
    )


def node_left(
    origin: Origin, at: Standpoint, *, node: str, node_id: str, cause: str, revision: int | None = None
) -> Event:
    """``elastic.node.left``: a node said that it leaves."""
    return _node("node.left", "LEFT", origin, at, node=node, node_id=node_id, cause=cause, revision=revision)


def node_lost(
    origin: Origin, at: Standpoint, *, node: str, node_id: str, cause: str, revision: int | None = None
) -> Event:
    """``elastic.node.lost``: a node is gone without a word: its lease ran out."""
    return _node("node.lost", "LOST", origin, at, node=node, node_id=node_id, cause=cause, revision=revision)


def lease_lost(origin: Origin, at: Standpoint, *, cause: str, revision: int | None = None) -> Event:
    """``elastic.lease.lost``: etcd no longer knows this node's lease."""
    return _agent("lease.lost", "LOST", origin, at, cause=cause, revision=revision)


def lease_regained(
    origin: Origin, at: Standpoint, *, cause: str = "", seconds: float, revision: int | None = None
) -> Event:
    """``elastic.lease.regained``: this node has a new lease, `seconds` after it lost its last."""
    return _agent("lease.regained", "REGAINED", origin, at, cause=cause, seconds=seconds, revision=revision)


def etcd_away(origin: Origin, at: Standpoint, *, cause: str) -> Event:
    """``elastic.etcd.away``: etcd does not answer. Workers run on."""
    return _agent("etcd.away", "AWAY", origin, at, cause=cause)


def etcd_back(origin: Origin, at: Standpoint, *, seconds: float, revision: int | None = None) -> Event:
    """``elastic.etcd.back``: etcd answers again, after `seconds`."""
    return _agent("etcd.back", "BACK", origin, at, seconds=seconds, revision=revision)


def worker_started(origin: Origin, at: Standpoint, worker: WorkerFacts, *, cause: str = "") -> Event:
    """``elastic.worker.started``"""
    return _worker("started", "START", origin, at, worker, cause=cause)


def worker_failed(
    origin: Origin, at: Standpoint, worker: WorkerFacts, *, exit_code: int, error: str, seconds: float
) -> Event:
    """``elastic.worker.failed``: it ended by a fault of its own, after `seconds`; `error` says which."""
    return _worker(
        "failed", "FAILED", origin, at, worker, cause=error, error=error, exit_code=exit_code, seconds=seconds
    )


def worker_stopped(
    origin: Origin,
    at: Standpoint,
    worker: WorkerFacts,
    *,
    cause: str,
    seconds: float,
    exit_code: int | None = None,
) -> Event:
    """``elastic.worker.stopped``: its agent stopped it, after `seconds`."""
    return _worker(
        "stopped", "TERMINATED", origin, at, worker, cause=cause, exit_code=exit_code, seconds=seconds
    )


def worker_succeeded(origin: Origin, at: Standpoint, worker: WorkerFacts, *, seconds: float) -> Event:
    """``elastic.worker.succeeded``, after `seconds`."""
    return _worker("succeeded", "SUCCEEDED", origin, at, worker, exit_code=0, seconds=seconds)


def restart_begun(origin: Origin, at: Standpoint, *, cause: str, revision: int | None = None) -> Event:
    """``elastic.restart.begun``: the workers are stopped, to be started in the next round.

    `cause` is best one of the words of the metric ``elastic_restarts_total``, so that both can be joined.
    """
    return _agent("restart.begun", "RESTARTING", origin, at, cause=cause, revision=revision)


def health_changed(origin: Origin, at: Standpoint, *, healthy: bool, cause: str) -> Event:
    """``elastic.health.changed``: this node's workers are found healthy, or no longer."""
    return _agent("health.changed", "HEALTHY" if healthy else "UNHEALTHY", origin, at, cause=cause)


def job_ended(
    origin: Origin, at: Standpoint, *, succeeded: bool, cause: str, revision: int | None = None
) -> Event:
    """``elastic.job.ended``: the job is over, and so is this agent."""
    state = "SUCCEEDED" if succeeded else "FAILED"
    return _agent("job.ended", state, origin, at, cause=cause, revision=revision)


def _agent(
    name: str,
    state: str,
    origin: Origin,
    at: Standpoint,
    *,
    cause: str = "",
    seconds: float | None = None,
    revision: int | None = None,
    source: EventSource = EventSource.AGENT,
) -> Event:
    """An event about the agent's own node."""
    about = _common(origin, at) | {
        "cause": cause or None,
        "revision": at.revision if revision is None else revision,
        "state": state,
        "duration_ms": _milliseconds(seconds),
    }
    return Event(f"elastic.{name}", source, metadata=about)


def _node(
    name: str,
    state: str,
    origin: Origin,
    at: Standpoint,
    *,
    node: str,
    node_id: str,
    cause: str,
    revision: int | None,
) -> Event:
    """An event about any node of the job; so the rank is not the reporter's."""
    event = _agent(name, state, origin, at, cause=cause, revision=revision)
    event.metadata |= {"node": node, "node_id": node_id, "group_rank": None}
    return event


def _worker(
    what: str,
    state: str,
    origin: Origin,
    at: Standpoint,
    worker: WorkerFacts,
    *,
    cause: str = "",
    error: str | None = None,
    exit_code: int | None = None,
    seconds: float | None = None,
) -> Event:
    event = _agent(
        f"worker.{what}", state, origin, at, cause=cause, seconds=seconds, source=EventSource.WORKER
    )
    event.metadata |= {
        "global_rank": worker.global_rank,
        "worker_id": None if worker.pid is None else str(worker.pid),
        "raw_error": error,
        "metadata": _details(
            origin,
            at,
            local_rank=worker.local_rank,
            role_rank=worker.role_rank,
            role_world_size=worker.role_world_size,
            exit_code=exit_code,
            worker_pid=worker.pid,
        ),
    }
    return event


def _common(origin: Origin, at: Standpoint) -> dict[str, EventMetadataValue]:
    return {
        "run_id": origin.run_id,
        "round": at.round,
        "node": origin.node,
        "node_id": origin.node_id,
        "reporter": origin.node,
        "cause": None,
        "revision": None,
        "state": None,
        "duration_ms": None,
        "hostname": origin.hostname,
        "role": origin.role,
        "rdzv_backend": origin.rdzv_backend,
        "group_rank": at.group_rank,
        "global_rank": None,
        "worker_id": None,
        "agent_restarts": at.agent_restarts,
        "total_run_time": int(at.total_run_time),
        "raw_error": None,
        "metadata": _details(origin, at),
    }


def _details(origin: Origin, at: Standpoint, **more: int | None) -> str:
    return json.dumps({"group_world_size": at.group_world_size, "entry_point": origin.entry_point, **more})


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
