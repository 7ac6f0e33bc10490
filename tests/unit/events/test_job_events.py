"""The events of a job: stable names, the same keys in each, and readable by what parses the peers' events."""

from __future__ import annotations

import inspect
import json

import pytest

from elastic.events import Event, EventSource, NodeState, RdzvEvent, job
from elastic.events.steps import rdzv_event

ORIGIN = job.Origin(
    run_id="run",
    node="alpha",
    node_id="alpha-1",
    hostname="alpha.example",
    role="trainer",
    entry_point="train.py",
)
AT = job.Standpoint(round=4, group_rank=1, group_world_size=3, agent_restarts=2, total_run_time=12.9)
WORKER = job.WorkerFacts(local_rank=0, global_rank=8, role_rank=8, role_world_size=24, pid=77)

EVENTS = {
    "elastic.world.formed": job.world_formed(ORIGIN, AT, cause="a node joined", seconds=1.5, revision=9),
    "elastic.world.superseded": job.world_superseded(ORIGIN, AT, cause="alpha starts anew", revision=9),
    "elastic.world.lost": job.world_lost(ORIGIN, AT, cause="evicted"),
    "elastic.node.joined": job.node_joined(ORIGIN, AT, node="beta", node_id="beta-1", revision=9),
    "elastic.node.left": job.node_left(
        ORIGIN, AT, node="beta", node_id="beta-1", cause="SIGTERM", revision=9
    ),
    "elastic.node.lost": job.node_lost(ORIGIN, AT, node="beta", node_id="beta-1", cause="lease", revision=9),
    "elastic.lease.lost": job.lease_lost(ORIGIN, AT, cause="it ran out", revision=9),
    "elastic.lease.regained": job.lease_regained(ORIGIN, AT, seconds=0.25, revision=9),
    "elastic.etcd.away": job.etcd_away(ORIGIN, AT, cause="connection refused"),
    "elastic.etcd.back": job.etcd_back(ORIGIN, AT, seconds=2, revision=9),
    "elastic.worker.started": job.worker_started(ORIGIN, AT, WORKER),
    "elastic.worker.failed": job.worker_failed(ORIGIN, AT, WORKER, exit_code=1, error="Boom: no", seconds=3),
    "elastic.worker.stopped": job.worker_stopped(
        ORIGIN, AT, WORKER, cause="round 5", seconds=3, exit_code=-15
    ),
    "elastic.worker.succeeded": job.worker_succeeded(ORIGIN, AT, WORKER, seconds=3),
    "elastic.restart.begun": job.restart_begun(ORIGIN, AT, cause="node_lost", revision=9),
    "elastic.health.changed": job.health_changed(ORIGIN, AT, healthy=False, cause="rank 8 is stuck"),
    "elastic.job.ended": job.job_ended(ORIGIN, AT, succeeded=False, cause="the budget is spent", revision=9),
}
STEPS = {name: step for name, event in EVENTS.items() if (step := rdzv_event(event, pid=77)) is not None}
STATES = {
    "elastic.world.formed": "RENDEZVOUS",
    "elastic.worker.started": "START",
    "elastic.worker.failed": "FAILED",
    "elastic.worker.stopped": "TERMINATED",
    "elastic.worker.succeeded": "SUCCEEDED",
    "elastic.job.ended": "FAILED",
}
PEERS_KEYS = {
    "run_id", "global_rank", "group_rank", "worker_id", "role", "hostname", "state", "total_run_time",
    "rdzv_backend", "raw_error", "metadata", "agent_restarts", "duration_ms",
}  # fmt: skip
PEERS_DETAILS = {
    "group_world_size", "entry_point", "local_rank", "role_rank", "role_world_size", "exit_code",
    "worker_pid",
}  # fmt: skip


def documented_keys() -> set[str]:
    """The keys in the table of the module's docstring."""
    table = (job.__doc__ or "").split("\n====")[2].splitlines()[1:]
    return {key for line in table if not line.startswith(" ") for key in line[:20].replace(",", " ").split()}


def test_every_kind_of_event_is_here() -> None:
    functions = inspect.getmembers(job, inspect.isfunction)
    public = [name for name, f in functions if f.__module__ == job.__name__ and not name.startswith("_")]
    assert len(public) == len(EVENTS)
    assert {f"elastic.{name.replace('_', '.', 1)}" for name in public} == EVENTS.keys()


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_has_its_name_and_all_documented_keys(name: str) -> None:
    event = EVENTS[name]
    assert event.name == name
    assert event.metadata.keys() == documented_keys()
    assert event.metadata.keys() >= PEERS_KEYS
    assert (event.metadata["run_id"], event.metadata["round"]) == ("run", 4)
    assert event.metadata["reporter"] == "alpha"
    assert event.metadata["total_run_time"] == 12
    assert event.timestamp > 0
    assert Event.deserialize(event.serialize()) == event


@pytest.mark.parametrize(("name", "state"), STATES.items())
def test_states_are_those_of_the_peers(name: str, state: str) -> None:
    assert EVENTS[name].metadata["state"] == state


def test_what_is_ordered_by_etcd_has_its_revision() -> None:
    without = {name for name, event in EVENTS.items() if event.metadata["revision"] is None}
    assert without == {name for name in EVENTS if name.startswith("elastic.worker.")} | {
        "elastic.world.lost",  # none was given
        "elastic.etcd.away",
        "elastic.health.changed",
    }


@pytest.mark.parametrize("own", [None, 9])
def test_what_etcd_has_no_revision_for_has_the_newest_that_was_heard_of(own: int | None) -> None:
    heard = job.Standpoint(revision=7)
    assert job.worker_started(ORIGIN, heard, WORKER).metadata["revision"] == 7
    assert job.lease_lost(ORIGIN, heard, cause="gone", revision=own).metadata["revision"] == (own or 7)


def test_a_worker_is_told_by_its_ranks() -> None:
    event = EVENTS["elastic.worker.failed"]
    assert event.source is EventSource.WORKER
    assert (event.metadata["global_rank"], event.metadata["worker_id"]) == (8, "77")
    assert (event.metadata["raw_error"], event.metadata["duration_ms"]) == ("Boom: no", 3000)
    details = json.loads(str(event.metadata["metadata"]))
    assert details.keys() == PEERS_DETAILS
    assert (details["exit_code"], details["entry_point"], details["local_rank"]) == (1, "train.py", 0)


def test_an_event_of_another_node_is_about_that_node() -> None:
    event = EVENTS["elastic.node.lost"]
    assert (event.metadata["node"], event.metadata["node_id"]) == ("beta", "beta-1")
    assert (event.metadata["reporter"], event.metadata["group_rank"]) == ("alpha", None)


def test_before_the_first_world_there_is_no_round() -> None:
    event = job.etcd_away(ORIGIN, job.Standpoint(), cause="refused")
    assert (event.metadata["round"], event.metadata["group_rank"]) == (None, None)


@pytest.mark.torch
@pytest.mark.parametrize("name", EVENTS)
def test_pytorch_reads_our_events(name: str) -> None:
    from torch.distributed.elastic.events import Event as TorchEvent

    event = EVENTS[name]
    read = TorchEvent.deserialize(event.serialize())
    assert (read.name, read.source.value, read.timestamp) == (event.name, event.source.value, event.timestamp)
    assert read.metadata == event.metadata


@pytest.mark.tensorplay
@pytest.mark.parametrize("name", EVENTS)
def test_tensorplay_reads_our_events(name: str) -> None:
    from tensorplay.distributed.elastic.events import Event as PeersEvent

    event = EVENTS[name]
    read = PeersEvent.deserialize(event.serialize())
    assert (read.name, read.source.value, read.timestamp) == (event.name, event.source.value, event.timestamp)
    assert read.metadata == event.metadata


def test_what_is_of_workers_alone_is_no_step() -> None:
    nouns = {name.split(".")[1] for name in EVENTS.keys() - STEPS.keys()}
    assert nouns == {"worker", "restart", "health"}
    assert {name.split(".")[1] for name in STEPS} == {"world", "node", "lease", "etcd", "job"}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_says_who_and_where(name: str) -> None:
    step = STEPS[name]
    assert (step.name, step.run_id, step.hostname, step.pid) == (name, "run", "alpha.example", 77)
    assert "{" not in step.message
    assert RdzvEvent.deserialize(step.serialize()) == step


def test_a_world_is_told_with_the_place_in_it() -> None:
    step = STEPS["elastic.world.formed"]
    assert step.message == "node alpha is in the world of round 4, as rank 1 of 3: a node joined"
    assert (step.rank, step.node_state) == (1, NodeState.RUNNING)
    assert STEPS["elastic.node.lost"].rank is None, "it is about another node than the reporter"


def test_the_end_is_how_the_job_ended() -> None:
    assert STEPS["elastic.job.ended"].node_state is NodeState.FAILED
    well = rdzv_event(job.job_ended(ORIGIN, AT, succeeded=True, cause="all have succeeded"), pid=1)
    assert well is not None
    assert well.node_state is NodeState.SUCCEEDED


@pytest.mark.torch
@pytest.mark.parametrize("name", STEPS)
def test_pytorch_reads_a_step(name: str) -> None:
    from torch.distributed.elastic.events import RdzvEvent as TorchEvent

    read = TorchEvent.deserialize(STEPS[name].serialize())
    assert (read.name, read.message) == (name, STEPS[name].message)
    assert read.node_state.value == STEPS[name].node_state.value
