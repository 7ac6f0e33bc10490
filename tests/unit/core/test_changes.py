"""Which changes are told of, and that each is told of once."""

from __future__ import annotations

from dataclasses import replace

from support.strategies import ROUND_NUMBER, node, world_of

from elastic.rendezvous.core.changes import (
    Change,
    JobClosed,
    NodeGone,
    NodeJoined,
    RoundFormed,
    RoundOpened,
    changes,
    missing,
)
from elastic.rendezvous.core.records import Outcome, Phase, Record, Terminal, Want
from elastic.rendezvous.core.view import CLOSED, ROUND, Fact, Seen, View, node_key

FORMED = world_of("a", "b")
OPEN = replace(FORMED, phase=Phase.OPEN, round=ROUND_NUMBER + 1)
ACTIVE = node("b", Want.ACTIVE, ROUND_NUMBER)
END = Terminal(
    outcome=Outcome.SUCCEEDED, reason="done", exit_code=0, incarnation=1, round=ROUND_NUMBER, node_id="a"
)


def written(key: str, record: Record, revision: int) -> Fact:
    return Fact(key, revision, Seen(record, revision, revision))


def told(before: View, *facts: Fact, leads: bool = True) -> list[Change]:
    return list(changes(before, before.learn(facts), facts, leads=leads))


def test_a_round_is_told_of_when_it_opens_and_when_it_is_formed() -> None:
    formed = View().learn([written(ROUND, FORMED, 5)])
    assert told(View(), written(ROUND, FORMED, 5)) == [RoundFormed(FORMED, 5)]
    assert told(formed, written(ROUND, replace(FORMED, nodes_waiting=1), 6)) == []
    assert told(formed, written(ROUND, OPEN, 6), leads=False) == [RoundOpened(OPEN, 6)]
    again = replace(OPEN, phase=Phase.FORMED)
    assert told(formed.learn([written(ROUND, OPEN, 6)]), written(ROUND, again, 7)) == [RoundFormed(again, 7)]


def test_a_job_ends_once() -> None:
    assert told(View(), written(CLOSED, END, 8)) == [JobClosed(END, 8)]
    assert told(View().learn([written(CLOSED, END, 8)]), written(CLOSED, END, 8)) == []


def test_nodes_come_and_go() -> None:
    key = node_key("b")
    there = View().learn([written(key, ACTIVE, 3)])
    leaving = written(key, replace(ACTIVE, want=Want.LEAVING, cause="told"), 4)
    gone = Fact(key, 5, None)
    assert told(View(), written(key, ACTIVE, 3)) == [NodeJoined(ACTIVE, 3)]
    assert told(there, written(key, replace(ACTIVE, draining=True), 4)) == []
    assert told(there, gone) == [NodeGone("b", said_goodbye=False, cause="", revision=5)]
    assert told(there.learn([leaving]), gone) == [NodeGone("b", said_goodbye=True, cause="told", revision=5)]
    # Both in one piece of news: what it said last is known from the news alone.
    assert [change.said_goodbye for change in told(there, leaving, gone)] == [True]  # type: ignore[union-attr]


def test_a_new_leader_tells_of_members_that_were_gone_before() -> None:
    known = View().learn([written(ROUND, FORMED, 5), written(node_key("b"), ACTIVE, 6)])
    assert list(missing(known)) == [NodeGone("a", said_goodbye=False, cause="", revision=6)]
    assert list(missing(View())) == []


def test_only_the_leader_tells_of_nodes() -> None:
    there = View().learn([written(node_key("b"), ACTIVE, 3)])
    assert told(View(), written(node_key("b"), ACTIVE, 3), leads=False) == []
    assert told(there, Fact(node_key("b"), 5, None), leads=False) == []
