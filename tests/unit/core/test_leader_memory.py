"""What a leader remembers, and for how long."""

from __future__ import annotations

from dataclasses import replace

from support.strategies import node, world_of

from elastic.rendezvous.core.actions import Commit
from elastic.rendezvous.core.leader import decide
from elastic.rendezvous.core.memory import Memory, observe
from elastic.rendezvous.core.records import Failure, Leader, Node, Phase, Round, Want
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import LEADER, ROUND, Fact, Seen, View, node_key

RULES = Rules(min_nodes=1, max_nodes=5)
ROOMY = Rules(min_nodes=1, max_nodes=9)
FORMED = world_of("a", "b", "c", "d")
FAILURE = Failure(round=7, rank=0, local_rank=0, exit_code=3, message="it failed")


def view_of(committed: Round, *nodes: Node) -> View:
    facts = [Fact(ROUND, 60, Seen(committed, 60, 5))]
    facts += [Fact(node_key(n.node_id), 10 + i, Seen(n, 10 + i, 10 + i)) for i, n in enumerate(nodes)]
    return View().learn(facts)


def heard() -> Memory:
    """Of a formed world: a runs, b is done and has vanished since, c has left, d has just vanished."""
    names = [("a", Want.ACTIVE), ("b", Want.DONE), ("c", Want.LEAVING), ("d", Want.ACTIVE)]
    memory = observe(Memory(), view_of(FORMED, *(node(i, want, 7) for i, want in names)), RULES, 100.0)
    return observe(memory, view_of(FORMED, node("a", Want.ACTIVE, 7)), RULES, 101.0)


def test_goodbyes_and_losses_are_known_from_what_was_seen() -> None:
    memory = heard()
    assert memory.left == {"c"}
    assert memory.done == {"b"}
    assert memory.missing_since == {"b": 101.0, "d": 101.0}


def test_what_was_heard_of_a_world_matters_while_the_next_round_gathers() -> None:
    opened = replace(FORMED, round=8, phase=Phase.OPEN)
    memory = observe(heard(), view_of(opened, node("a", Want.JOINING, 8)), RULES, 105.0)
    assert memory.left == {"c"}
    assert memory.done == {"b"}
    assert memory.missing_since == {"b": 101.0, "d": 101.0}


def test_and_is_forgotten_once_that_is_formed() -> None:
    opened = replace(FORMED, round=8, phase=Phase.OPEN)
    memory = observe(heard(), view_of(opened, node("a", Want.JOINING, 8)), RULES, 105.0)
    formed = replace(world_of("a"), round=8)
    memory = observe(memory, view_of(formed, node("a", Want.ACTIVE, 8)), RULES, 106.0)
    assert (memory.left, memory.done, memory.missing_since) == (frozenset(), frozenset(), {})


def test_who_is_back_is_missing_no_more_and_who_runs_again_is_not_done() -> None:
    memory = observe(heard(), view_of(FORMED, node("b", Want.ACTIVE, 7)), RULES, 105.0)
    assert memory.done == frozenset()
    assert memory.missing_since == {"a": 105.0, "d": 101.0}


def test_a_failure_keeps_the_revision_of_its_first_report() -> None:
    opened = replace(FORMED, round=8, phase=Phase.OPEN)
    stopping = node("b", Want.STOPPING, 8, failure=FAILURE)
    memory = observe(Memory(), view_of(opened, stopping), RULES, 100.0)
    joining = view_of(opened, node("a", Want.JOINING, 8), replace(stopping, want=Want.JOINING))
    assert observe(memory, joining, RULES, 101.0).reported == {"b": 10}


def test_without_a_round_there_is_nothing_to_remember() -> None:
    assert observe(heard(), View(), RULES, 105.0) == Memory()


def test_arrivals_without_end_are_let_in_after_a_few_settle_times() -> None:
    """A node that crashes at its start and comes again, each time a new one, holds up no other for ever."""
    members = [node(i, Want.ACTIVE, 7) for i in ("a", "b", "c", "d")]
    memory, announced = Memory(), None
    led = [Fact(LEADER, 3, Seen(Leader(node_id="a"), 3, 3))]
    for turn in range(40):
        now = 100.0 + turn * 0.5 * RULES.settle
        newcomer = node(f"new-{turn}", Want.WAITING, 7)
        view = view_of(replace(FORMED, max_nodes=9), *members, newcomer).learn(led)
        memory = observe(memory, view, ROOMY, now)
        action = decide("a", view, memory=memory, rules=ROOMY, now=now)
        if isinstance(action, Commit):
            announced = now - 100.0
            break
    assert announced is not None
    assert announced <= 6 * RULES.settle
