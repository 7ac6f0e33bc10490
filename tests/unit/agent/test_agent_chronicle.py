"""What is told of an agent's life: from facts and changes to events and metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.memory_store import Memory, MemoryStore
from support.strategies import node, world_of

from elastic.agent.server import RunResult, WorkerGroup, WorkerSpec, WorkerState
from elastic.agent.server.chronicle import Chronicle
from elastic.agent.server.instruments import (
    Ended,
    Entered,
    Joining,
    Leaving,
    LoopState,
    Regrouping,
    WorkerFailed,
    WorkersStopped,
    WorkersSucceeded,
)
from elastic.agent.server.policy import Phase as AgentPhase
from elastic.agent.server.stragglers import Finding, Pace
from elastic.events import Event, job
from elastic.metrics import JobFacts, JobMetrics, RestartCause
from elastic.multiprocessing import ProcessFailure
from elastic.rendezvous import Failure, RendezvousInfo, RendezvousStateError, RendezvousStoreInfo
from elastic.rendezvous.core.changes import (
    BackendAnswered,
    BackendAway,
    BackendBack,
    JobClosed,
    LeaseHeld,
    LeaseLost,
    LeaseRenewed,
    NodeGone,
    NodeJoined,
    RoundFormed,
    RoundOpened,
)
from elastic.rendezvous.core.records import Outcome, Phase, Terminal, Trigger, Want

ME = "a-00000001"
PEER = "b-00000002"
OVER = Ended(RunResult(WorkerState.SUCCEEDED))
NEITHER = {"waiting": 0, "leaving": 0}


class Agent:
    """An agent on paper: `told` is what its chronicle has recorded."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.metrics = JobMetrics(JobFacts(run_id="job", node="a"))
        origin = job.Origin(run_id="job", node="a", node_id=ME, hostname="here")
        self.chronicle = Chronicle(origin, record=self.told.append, metrics=self.metrics)

    def enter(self, number: int = 1, *, is_late: bool = False) -> None:
        """It enters a world, of which it has heard; `is_late`: of a later one, too."""
        formed = replace(world_of(ME, PEER), round=number)
        if not is_late:
            self.chronicle.changed(RoundFormed(formed, 10 * number))
        spec = WorkerSpec("trainer", 2, None, entrypoint="train")  # type: ignore[arg-type]
        group = WorkerGroup(spec)
        for rank, worker in enumerate(group.workers):
            worker.global_rank = worker.role_rank = rank
            worker.world_size = worker.role_world_size = 4
            worker.id = 1000 + rank
        info = RendezvousInfo(
            store=MemoryStore(Memory()),
            rank=0,
            world_size=2,
            bootstrap_store_info=RendezvousStoreInfo("here", 1),
            round=number,
            participants=formed.world,
            cause="so it was",
            revision=10 * number,
        )
        pids = {worker.local_rank: worker.id for worker in group.workers}
        self.chronicle.tell(Entered(info, group, pids, 0.5))

    def fail(self, *, final: bool = False, is_stuck: bool = False) -> None:
        failure = Failure(round=1, rank=0, local_rank=0, exit_code=3, message="worker 0 failed", final=final)
        self.chronicle.tell(WorkerFailed(failure, is_stuck=is_stuck))

    def names(self) -> list[str]:
        return [event.name.removeprefix("elastic.") for event in self.told]

    def about(self, name: str) -> list[dict[str, Any]]:
        return [event.metadata for event in self.told if event.name == f"elastic.{name}"]

    def restarts(self) -> dict[str, int]:
        """By cause, by what the metrics say, which the events must say as well."""
        counted = {cause.value: times for cause, times in self.metrics.snapshot().restarts.items()}
        told = [about["cause"] for about in self.about("restart.begun")]
        assert counted == {cause: told.count(cause) for cause in set(told)}
        return counted


def opened(number: int, trigger: Trigger = Trigger.UNTOLD, *members: str) -> RoundOpened:
    world = world_of(*(members or (ME, PEER)))
    record = replace(world, round=number, phase=Phase.OPEN, trigger=trigger, cause="so it is")
    return RoundOpened(record, 10 * number)


@pytest.fixture
def agent() -> Agent:
    return Agent()


TRIGGERS = [
    (Trigger.FAILURE, RestartCause.PEER_FAILED),
    (Trigger.LOST, RestartCause.NODE_LOST),
    (Trigger.LEFT, RestartCause.NODE_LEFT),
    (Trigger.REPLACED, RestartCause.NODE_LEFT),
    (Trigger.ARRIVAL, RestartCause.NODE_JOINED),
    (Trigger.REQUEST, RestartCause.REQUESTED),
    (Trigger.UNTOLD, RestartCause.OTHER),
    (Trigger.START, RestartCause.OTHER),
    (Trigger.RECOVERY, RestartCause.OTHER),
]


@pytest.mark.parametrize("is_formed", [False, True], ids=["opened", "formed while nobody looked"])
@pytest.mark.parametrize(("trigger", "cause"), TRIGGERS)
def test_a_newer_round_is_a_restart_for_the_reason_it_was_opened_for(
    agent: Agent, trigger: Trigger, cause: RestartCause, is_formed: bool
) -> None:
    agent.enter(1)
    change = opened(2, trigger)
    agent.chronicle.changed(RoundFormed(change.round, 20) if is_formed else change)
    # What else it sees by then is not why.
    agent.chronicle.tell(Regrouping("round 2", superseded=True, waiting=1, leaving=1))
    assert agent.restarts() == {cause.value: 1}


def test_every_kind_of_trigger_has_a_row() -> None:
    assert {trigger for trigger, _ in TRIGGERS} == set(Trigger)


@pytest.mark.parametrize(
    ("waiting", "leaving", "cause"),
    [
        (1, 0, RestartCause.NODE_JOINED),
        (1, 1, RestartCause.NODE_JOINED),
        (0, 1, RestartCause.NODE_LEFT),
        (0, 0, RestartCause.REQUESTED),
    ],
)
def test_who_is_the_first_to_act_goes_by_what_it_acts_on(
    agent: Agent, waiting: int, leaving: int, cause: RestartCause
) -> None:
    agent.enter(1)
    agent.chronicle.tell(Regrouping("why", superseded=False, waiting=waiting, leaving=leaving))
    agent.chronicle.changed(opened(2, Trigger.ARRIVAL))
    assert agent.restarts() == {cause.value: 1}


def test_a_round_without_this_node_is_one_that_its_lost_lease_cost(agent: Agent) -> None:
    agent.enter(1)
    agent.chronicle.changed(opened(2, Trigger.LOST, PEER))
    agent.chronicle.tell(Regrouping("round 2", superseded=True, **NEITHER))
    assert agent.restarts() == {"lease_lost": 1}


def test_a_round_that_is_not_known_says_nothing(agent: Agent) -> None:
    agent.chronicle.changed(opened(1, Trigger.LOST))
    agent.enter(1)
    agent.chronicle.tell(Regrouping("etcd was wiped", superseded=True, **NEITHER))
    assert agent.restarts() == {"other": 1}


@pytest.mark.parametrize(("is_stuck", "cause"), [(False, "worker_failed"), (True, "worker_stuck")])
def test_a_failed_worker_is_a_restart(agent: Agent, is_stuck: bool, cause: str) -> None:
    agent.enter(1)
    agent.fail(is_stuck=is_stuck)
    assert agent.metrics.snapshot().healthy is not is_stuck
    agent.enter(2)
    assert agent.restarts() == {cause: 1}
    assert agent.metrics.snapshot().healthy
    states = [about["state"] for about in agent.about("health.changed")]
    assert states == (["UNHEALTHY", "HEALTHY"] if is_stuck else [])
    assert agent.about("world.formed")[-1]["agent_restarts"] == 1


def test_the_last_failure_is_no_restart_unless_there_is_one_after_all(agent: Agent) -> None:
    agent.enter(1)
    agent.fail(final=True)
    agent.chronicle.tell(Joining("the workers are stopped"))
    assert agent.restarts() == {}
    agent.enter(2)
    assert agent.restarts() == {"worker_failed": 1}
    agent.enter(3)
    assert agent.restarts() == {"worker_failed": 1}


def test_every_cause_can_be_told() -> None:
    told = {cause for _, cause in TRIGGERS}
    told |= {RestartCause.WORKER_FAILED, RestartCause.WORKER_STUCK, RestartCause.LEASE_LOST}
    assert told == set(RestartCause)


def test_a_world_is_superseded_once(agent: Agent) -> None:
    agent.enter(1)
    for change in (opened(2), RoundFormed(replace(opened(2).round, phase=Phase.FORMED), 21), opened(3)):
        agent.chronicle.changed(change)
    assert [(about["round"], about["revision"]) for about in agent.about("world.superseded")] == [(1, 20)]
    agent.enter(3)
    agent.chronicle.changed(opened(4))
    assert [about["round"] for about in agent.about("world.superseded")] == [1, 3]


def test_a_world_that_was_superseded_while_its_workers_were_started_is_told_of_as_well(agent: Agent) -> None:
    agent.chronicle.changed(opened(2))
    agent.enter(1, is_late=True)
    assert [(about["round"], about["revision"]) for about in agent.about("world.superseded")] == [(1, 20)]


def test_before_there_is_a_world_none_is_superseded(agent: Agent) -> None:
    agent.chronicle.changed(opened(1))
    assert agent.names() == []


def test_the_ends_of_workers(agent: Agent) -> None:
    agent.enter(1)
    failed = ProcessFailure(local_rank=0, pid=1000, exitcode=3, message="it broke")
    victim = ProcessFailure(local_rank=1, pid=1001, exitcode=-15, victim=True)
    agent.chronicle.tell(WorkersStopped(2.0, {0: failed}, {1: victim}))
    agent.chronicle.tell(WorkersStopped(2.0, {0: failed}, {1: victim}))
    [failure] = agent.about("worker.failed")
    assert (failure["global_rank"], failure["raw_error"], failure["duration_ms"]) == (0, "it broke", 2000)
    [stopped] = agent.about("worker.stopped")
    assert (stopped["global_rank"], stopped["cause"]) == (1, "stopped by its agent")
    assert dict(agent.metrics.snapshot().workers) == {"failed": 1, "stopped": 1}


def test_workers_that_succeeded_are_not_stopped_afterwards(agent: Agent) -> None:
    agent.enter(1)
    agent.chronicle.tell(WorkersSucceeded(1.0))
    agent.chronicle.tell(WorkersStopped(2.0, {}, {}))
    assert agent.names()[-2:] == ["worker.succeeded"] * 2
    assert dict(agent.metrics.snapshot().workers) == {"succeeded": 2}


def test_a_node_that_may_take_no_further_part_says_so(agent: Agent) -> None:
    agent.enter(1)
    agent.chronicle.tell(Ended(None, RendezvousStateError("it was evicted")))
    [lost] = agent.about("world.lost")
    assert lost["cause"] == "it was evicted"
    assert not agent.metrics.snapshot().in_world


@pytest.mark.parametrize("how", ["left", "ended"])
def test_a_node_that_leaves_or_ends_with_the_job_is_not_lost(agent: Agent, how: str) -> None:
    agent.enter(1)
    if how == "left":
        agent.chronicle.tell(Leaving("received SIGTERM"))
    else:
        agent.chronicle.changed(JobClosed(terminal(1), 30))
    agent.chronicle.tell(Ended(None, RendezvousStateError("over")))
    assert agent.about("world.lost") == []


def terminal(code: int) -> Terminal:
    outcome = Outcome.FAILED if code else Outcome.SUCCEEDED
    return Terminal(outcome=outcome, reason="over", exit_code=code, incarnation=1, round=1, node_id=ME)


@pytest.mark.parametrize(("code", "state"), [(0, "SUCCEEDED"), (3, "FAILED")])
def test_the_end_of_the_job(agent: Agent, code: int, state: str) -> None:
    agent.enter(1)
    agent.chronicle.changed(JobClosed(terminal(code), 30))
    [ended] = agent.about("job.ended")
    assert (ended["state"], ended["cause"], ended["revision"]) == (state, "over", 30)


def test_nodes_that_come_and_go(agent: Agent) -> None:
    peer = node(PEER, Want.ACTIVE, 1, name="b")
    agent.chronicle.changed(NodeJoined(peer, 5))
    agent.chronicle.changed(NodeGone(peer.node_id, said_goodbye=True, cause="received SIGTERM", revision=6))
    agent.chronicle.changed(NodeGone(peer.node_id, said_goodbye=False, cause="", revision=7))
    told = [(e.name, e.metadata["node"], e.metadata["cause"], e.metadata["revision"]) for e in agent.told]
    assert told == [
        ("elastic.node.joined", "b", "it registered", 5),
        ("elastic.node.left", "b", "received SIGTERM", 6),
        ("elastic.node.lost", "b", "its lease ended", 7),
    ]
    assert {(e.metadata["node_id"], e.metadata["reporter"]) for e in agent.told} == {(PEER, "a")}


def test_that_nodes_go_when_the_job_has_ended_is_not_worth_an_event(agent: Agent) -> None:
    agent.enter(1)
    agent.chronicle.changed(JobClosed(terminal(0), 30))
    agent.chronicle.changed(NodeGone(PEER, said_goodbye=True, cause="", revision=31))
    assert agent.names()[-1] == "job.ended"


def test_the_end_of_an_earlier_run_is_not_that_of_this_one(agent: Agent) -> None:
    agent.chronicle.changed(RoundFormed(replace(opened(1).round, phase=Phase.FORMED), 10))
    agent.chronicle.changed(JobClosed(terminal(3), 11))
    agent.chronicle.changed(opened(2))
    assert agent.names() == []
    agent.enter(2)
    agent.chronicle.changed(JobClosed(terminal(0), 30))
    agent.chronicle.tell(OVER)
    assert [(about["state"], about["revision"]) for about in agent.about("job.ended")] == [("SUCCEEDED", 30)]


def test_a_node_that_comes_too_late_tells_of_the_end_when_it_goes(agent: Agent) -> None:
    agent.chronicle.changed(JobClosed(terminal(3), 11))
    agent.chronicle.tell(OVER)
    assert [(about["state"], about["revision"]) for about in agent.about("job.ended")] == [("FAILED", 11)]


def test_the_lease_is_lost_once_and_regained_once(agent: Agent) -> None:
    for change in (LeaseHeld(), LeaseRenewed(), LeaseLost("gone"), LeaseLost("still gone"), LeaseHeld()):
        agent.chronicle.changed(change)
    agent.chronicle.changed(LeaseHeld())
    assert agent.names() == ["lease.lost", "lease.regained"]
    assert agent.about("lease.lost")[0]["cause"] == "gone"
    snapshot = agent.metrics.snapshot()
    assert snapshot.leases_lost == 1
    assert snapshot.lease_age is not None


def test_etcd_is_away_and_back(agent: Agent) -> None:
    agent.chronicle.changed(BackendAway("silence"))
    assert agent.metrics.snapshot().etcd_away
    agent.chronicle.changed(BackendBack(3.0))
    agent.chronicle.changed(BackendAnswered("txn", 0.01))
    agent.chronicle.changed(BackendAnswered("txn", 2.0, failed=True))
    assert agent.names() == ["etcd.away", "etcd.back"]
    assert agent.about("etcd.back")[0]["duration_ms"] == 3000
    snapshot = agent.metrics.snapshot()
    assert (snapshot.etcd_away, snapshot.etcd_failures) == (False, {"txn": 1})


def test_what_has_no_revision_of_its_own_is_told_with_the_newest_that_was_heard_of(agent: Agent) -> None:
    agent.chronicle.changed(BackendAway("silence"))
    agent.enter(1)
    agent.fail()
    peer = node(PEER, Want.ACTIVE, 1, name="b")
    agent.chronicle.changed(NodeJoined(peer, 15))
    agent.chronicle.changed(NodeGone(peer.node_id, said_goodbye=False, cause="", revision=0))  # not known
    agent.chronicle.changed(LeaseLost("gone"))
    agent.chronicle.changed(opened(2))
    agent.chronicle.changed(NodeJoined(peer, 17))  # one batch, in which it comes later
    agent.chronicle.changed(LeaseHeld())
    assert [(event.name.removeprefix("elastic."), event.metadata["revision"]) for event in agent.told] == [
        ("etcd.away", None),
        ("world.formed", 10),
        ("worker.started", 10),
        ("worker.started", 10),
        ("restart.begun", 10),
        ("node.joined", 15),
        ("node.lost", 15),
        ("lease.lost", 15),
        ("world.superseded", 20),
        ("node.joined", 17),
        ("lease.regained", 20),
    ]


@pytest.mark.parametrize(
    "anew",
    [
        RoundOpened(replace(opened(1).round, incarnation=2), 4),
        RoundFormed(replace(world_of(ME, PEER), round=3), 4),  # the world goes on: it is told again
    ],
)
def test_an_etcd_that_was_wiped_counts_from_its_start(agent: Agent, anew: RoundOpened | RoundFormed) -> None:
    agent.enter(3)
    agent.chronicle.changed(anew)
    agent.chronicle.changed(LeaseLost("gone"))
    assert agent.about("lease.lost")[0]["revision"] == 4


def finding(pace: Pace, rank: int, series: str = "step") -> Finding:
    return Finding(pace=pace, rank=rank, series=series, seconds=2.0, typical=1.0)


def test_a_node_is_healthy_again_when_nobody_is_slow_or_stuck_any_more(agent: Agent) -> None:
    agent.enter(1)
    for pace in (Pace.SLOW, Pace.STUCK, Pace.EVEN, Pace.MOVING):
        agent.chronicle.found(finding(pace, 1))
    agent.chronicle.found(finding(Pace.SLOW, 0, "forward"))
    states = [about["state"] for about in agent.about("health.changed")]
    assert states == ["UNHEALTHY", "UNHEALTHY", "UNHEALTHY", "HEALTHY", "UNHEALTHY"]
    agent.enter(2)
    assert agent.metrics.snapshot().healthy
    assert agent.about("health.changed")[-1]["cause"] == "its workers were started anew"


def test_who_waits_is_a_metric(agent: Agent) -> None:
    agent.chronicle.turn(LoopState(phase=AgentPhase.RUNNING, waiting=2, spares=1))
    assert (agent.metrics.snapshot().waiting, agent.metrics.snapshot().spares) == (2, 1)
