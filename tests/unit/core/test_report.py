"""Why a run waits, in one sentence, for every state that an operator can find it in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.strategies import ROUND_NUMBER, node, world_of

from elastic.rendezvous.core.records import Leader, Node, Outcome, Phase, Round, Terminal, Want
from elastic.rendezvous.core.report import report
from elastic.rendezvous.core.view import CLOSED, LEADER, ROUND, Fact, Seen, View, node_key

OPEN = replace(world_of(), phase=Phase.OPEN)
FORMED = world_of("a", "b")
SUCCEEDED = Terminal(
    outcome=Outcome.SUCCEEDED,
    reason="all workers have succeeded",
    exit_code=0,
    incarnation=1,
    round=ROUND_NUMBER,
    node_id="a",
)


def view(
    *nodes: Node, committed: Round | None = None, led: bool = True, closed: Terminal | None = None
) -> View:
    records = {node_key(n.node_id): n for n in nodes}
    others = {ROUND: committed, LEADER: Leader(node_id="a") if led else None, CLOSED: closed}
    found = [*records.items(), *((key, record) for key, record in others.items() if record is not None)]
    return View().learn(Fact(key, i, Seen(record, i, i)) for i, (key, record) in enumerate(found, start=1))


def joining(name: str) -> Node:
    return node(name, Want.JOINING, ROUND_NUMBER)


def active(name: str, *, draining: bool = False) -> Node:
    return node(name, Want.ACTIVE, ROUND_NUMBER, draining=draining)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (view(led=False), "no agent is here"),
        (view(committed=FORMED, led=False), "no agent is left; the last round was 7"),
        (view(active("a"), active("b"), committed=FORMED), "round 7 runs with 2 nodes"),
        (
            view(active("a"), active("b", draining=True), committed=FORMED),
            "round 7 runs with 2 nodes; to leave once workers have saved: b",
        ),
        (
            view(active("b"), committed=replace(FORMED, finished=(0,))),
            "round 7 runs with 2 nodes; done, so that nobody else is let in: a",
        ),
        (
            view(active("a"), node("b", Want.DONE, ROUND_NUMBER), committed=FORMED),
            "round 7 runs with 2 nodes; done, so that nobody else is let in: b",
        ),
        (
            view(joining("a"), committed=OPEN, led=False),
            "no node leads: the last leader's lease has just ended",
        ),
        (view(joining("a"), committed=OPEN), "round 7 has 1 of at least 2 nodes: 1 missing"),
        (
            view(joining("a"), joining("b"), committed=OPEN),
            "round 7 has 2 nodes and waits a moment for more, up to 3",
        ),
        (
            view(joining("a"), node("b", Want.STOPPING, ROUND_NUMBER), committed=OPEN),
            "round 7 waits for b to stop the workers of the round before",
        ),
        (
            view(active("a"), committed=FORMED, closed=SUCCEEDED),
            "the job has ended (succeeded): all workers have succeeded",
        ),
    ],
)
def test_why(known: View, why: str) -> None:
    assert report(known, min_nodes=2, max_nodes=3).why == why


def test_who_does_what() -> None:
    known = view(
        joining("a"),
        active("b"),
        node("c", Want.WAITING, ROUND_NUMBER),
        node("d", Want.SPARE, ROUND_NUMBER),
        committed=OPEN,
    )
    assert str(report(known, min_nodes=2, max_nodes=3)) == (
        "round 7 waits for b to stop the workers of the round before; "
        "joined: a; running: b; waiting: c; spare: d"
    )
