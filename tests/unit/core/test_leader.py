"""Single decisions of the leader."""

from __future__ import annotations

from dataclasses import replace

from support.strategies import node, world_of

from elastic.rendezvous.core.actions import Commit, Rest
from elastic.rendezvous.core.leader import decide
from elastic.rendezvous.core.memory import Memory, observe
from elastic.rendezvous.core.records import Leader, Node, Phase, Want
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import LEADER, ROUND, Fact, Seen, View, node_key

RULES = Rules(min_nodes=1, max_nodes=3)
OPENED = replace(world_of("a"), round=8, phase=Phase.OPEN, min_nodes=1, max_nodes=3)


def next_of(*nodes: Node) -> Commit | Rest:
    """What the leader "a" does next in the round that has just been opened."""
    facts = [Fact(ROUND, 60, Seen(OPENED, 60, 5)), Fact(LEADER, 3, Seen(Leader(node_id="a"), 3, 3))]
    facts += [Fact(node_key(n.node_id), 10 + i, Seen(n, 10 + i, 10 + i)) for i, n in enumerate(nodes)]
    view = View().learn(facts)
    action = decide("a", view, memory=observe(Memory(), view, RULES, 1.0), rules=RULES, now=1.0)
    assert isinstance(action, (Commit, Rest))
    return action


def test_newcomers_that_are_on_their_way_are_waited_for_while_there_is_room() -> None:
    """The round may have been opened for their sake: they have heard of it, and join in a moment."""
    survivor = node("a", Want.JOINING, 8)
    assert isinstance(next_of(survivor, node("b", Want.WAITING, 7)), Rest)
    assert isinstance(next_of(survivor, node("b", Want.SPARE, 7)), Rest)


def test_nobody_else_is_waited_for() -> None:
    survivor = node("a", Want.JOINING, 8)
    full = [survivor, node("b", Want.JOINING, 8), node("c", Want.JOINING, 8), node("d", Want.WAITING, 7)]
    for nodes in ([survivor], full):
        action = next_of(*nodes)
        assert isinstance(action, Commit)
        assert action.step == "form"
