"""The agent's decision as a table: every combination of what it can see, against the rules one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from elastic.agent.server.policy import Decision, Move, Phase, Scene, decide
from elastic.agent.server.spec import WorkerState
from elastic.rendezvous import RendezvousStatus, Standing

SCENES = [
    Scene(
        phase=phase,
        workers=workers,
        status=RendezvousStatus(
            standing=standing, reason="why", nodes_waiting=waiting, nodes_leaving=leaving
        ),
        orders=orders,
        failures=failures,
        max_restarts=1,
        shares_failures=shares,
        # A scene has a use for these in one phase only, so they need not vary together.
        is_overdue=enough,
        gives_notice=notice,
        acknowledged=notice,
    )
    for phase, workers, standing, (waiting, leaving), orders, failures, shares, enough, notice in product(
        (Phase.RUNNING, Phase.NOTICE, Phase.BARRIER),
        WorkerState,
        Standing,
        ((0, 0), (2, 0), (0, 1)),
        (0, 1, 2),
        (0, 1, 2),
        (False, True),
        (False, True),
        (False, True),
    )
]


def expected(scene: Scene) -> Move:
    """The rows of the module's table, the first that fits."""
    standing = scene.status.standing
    running = scene.phase is not Phase.BARRIER
    noticed = scene.phase is Phase.NOTICE
    answered = noticed and scene.acknowledged
    well = scene.workers is WorkerState.HEALTHY and standing is Standing.CURRENT
    drains = running and well and scene.orders == 1 and scene.gives_notice
    rows = [
        (drains and not noticed, Move.DRAIN),
        (drains and not scene.is_overdue, Move.STAY),
        (scene.orders > 0, Move.LEAVE),
        (standing is Standing.CLOSED, Move.END),
        (standing is Standing.EVICTED, Move.END),
        (standing is Standing.LOST, Move.END),
        (not running and standing is Standing.SUPERSEDED, Move.REGROUP),
        (not running and scene.is_overdue, Move.FINISH),
        (not running, Move.STAY),
        (
            scene.workers is WorkerState.FAILED
            and not answered
            and not scene.shares_failures
            and scene.failures >= 1,
            Move.FAIL,
        ),
        (scene.workers is WorkerState.FAILED and not answered, Move.RETRY),
        (standing is Standing.SUPERSEDED, Move.REGROUP),
        (scene.workers is WorkerState.SUCCEEDED and not answered, Move.SUCCEED),
        (noticed, Move.REGROUP if scene.is_overdue else Move.STAY),
        (scene.status.nodes_waiting > 0 and scene.gives_notice, Move.NOTIFY),
        (scene.status.nodes_waiting > 0, Move.REGROUP),
        (scene.status.nodes_leaving > 0 and scene.gives_notice, Move.NOTIFY),
        (True, Move.STAY),
    ]
    return next(move for fits, move in rows if fits)


def test_every_scene() -> None:
    assert len(SCENES) == 3 * 7 * 5 * 3 * 3 * 3 * 2 * 2 * 2
    wrong = [(scene, decide(scene)) for scene in SCENES if decide(scene).move is not expected(scene)]
    assert wrong == []


def test_every_move_is_reached() -> None:
    assert {decide(scene).move for scene in SCENES} == set(Move)


HEALTHY = Scene(phase=Phase.RUNNING, workers=WorkerState.HEALTHY, status=RendezvousStatus())


def with_status(scene: Scene = HEALTHY, **status: object) -> Scene:
    return replace(scene, status=replace(scene.status, **status))  # type: ignore[arg-type]


@pytest.mark.parametrize("standing", [s for s in Standing if s is not Standing.CURRENT])
def test_a_decision_says_why(standing: Standing) -> None:
    assert decide(with_status(standing=standing, reason="n1 was lost")).why == "n1 was lost"
    barrier = replace(HEALTHY, phase=Phase.BARRIER)
    assert decide(with_status(barrier, standing=standing, reason="n1 was lost")).why == "n1 was lost"


def test_a_decision_says_how_many_wait() -> None:
    assert decide(with_status(nodes_waiting=3)) == Decision(Move.REGROUP, "3 waiting")


@pytest.mark.parametrize(
    ("scene", "move"),
    [
        # A failed worker beside a newer round: others see it too, and the failure must be told.
        (
            with_status(replace(HEALTHY, workers=WorkerState.FAILED), standing=Standing.SUPERSEDED),
            Move.RETRY,
        ),
        # Workers that are done are not restarted for a newcomer.
        (with_status(replace(HEALTHY, workers=WorkerState.SUCCEEDED), nodes_waiting=1), Move.SUCCEED),
        # The end of the job stands above a worker's own failure: it is usually its consequence.
        (with_status(replace(HEALTHY, workers=WorkerState.FAILED), standing=Standing.CLOSED), Move.END),
        # Whoever shares failures leaves their count to the leader, also beyond its own budget.
        (replace(HEALTHY, workers=WorkerState.FAILED, failures=9, max_restarts=0), Move.RETRY),
        (
            replace(HEALTHY, workers=WorkerState.FAILED, failures=1, max_restarts=2, shares_failures=False),
            Move.RETRY,
        ),
        (
            replace(HEALTHY, workers=WorkerState.FAILED, failures=0, max_restarts=0, shares_failures=False),
            Move.FAIL,
        ),
        # An outage is no reason to do anything.
        (with_status(connected=False), Move.STAY),
        (replace(HEALTHY, workers=WorkerState.UNHEALTHY), Move.STAY),
        # Who waited may be gone again: a worker that has acknowledged waits to be stopped all the same.
        (replace(HEALTHY, phase=Phase.NOTICE, acknowledged=True, all_acknowledged=True), Move.REGROUP),
        # Peers that have been stopped already make a worker fail that has saved: no failure.
        (
            replace(
                HEALTHY,
                phase=Phase.NOTICE,
                workers=WorkerState.FAILED,
                acknowledged=True,
                all_acknowledged=True,
            ),
            Move.REGROUP,
        ),
        (replace(HEALTHY, phase=Phase.NOTICE, workers=WorkerState.FAILED), Move.RETRY),
        # Workers that save are not waited for any longer when the order is repeated, or all have saved.
        (replace(HEALTHY, phase=Phase.NOTICE, orders=1, gives_notice=True), Move.STAY),
        (replace(HEALTHY, phase=Phase.NOTICE, orders=2, gives_notice=True), Move.LEAVE),
        (
            replace(HEALTHY, phase=Phase.NOTICE, orders=1, gives_notice=True, all_acknowledged=True),
            Move.LEAVE,
        ),
        # Whoever gives no notice takes none: the departure itself comes soon enough.
        (with_status(nodes_leaving=1), Move.STAY),
    ],
)
def test_what_comes_first(scene: Scene, move: Move) -> None:
    assert decide(scene).move is move
