"""When what a node reads cannot follow from what it knew: the sign that etcd has lost its data."""

from __future__ import annotations

import pytest

from elastic.rendezvous.core.records import Leader, Record
from elastic.rendezvous.core.view import Fact, Seen, View


def leader(node_id: str, revision: int) -> Seen[Record]:
    return Seen(Leader(node_id=node_id), revision, revision)


KNOWN = View().learn([Fact("leader", 5, leader("a", 5)), Fact("closed", 7, None)])
SCOPE = ("leader", "closed", "round")


@pytest.mark.parametrize(
    ("revision", "found"),
    [
        (7, {"leader": leader("a", 5)}),
        (9, {"leader": leader("a", 5)}),
        (9, {"leader": leader("b", 8)}),
        (9, {}),
        (9, {"round": leader("x", 1)}),
        (9, {"closed": leader("x", 8)}),
    ],
)
def test_what_can_follow(revision: int, found: dict[str, Seen[Record]]) -> None:
    """A key is as it was, was written or deleted later, or was never looked at before."""
    assert not KNOWN.contradicted_by(revision, SCOPE, found)


@pytest.mark.parametrize(
    ("revision", "found"),
    [
        (6, {"leader": leader("a", 5)}),
        (1, {}),
        (9, {"leader": leader("a", 4)}),
        (9, {"leader": leader("b", 5)}),
        (9, {"closed": leader("x", 7)}),
        (9, {"closed": leader("x", 3)}),
    ],
)
def test_what_cannot(revision: int, found: dict[str, Seen[Record]]) -> None:
    """It is older than what was known, or a revision that was known says something else."""
    assert KNOWN.contradicted_by(revision, SCOPE, found)


@pytest.mark.parametrize(
    ("revision", "scope", "contradicted"),
    [(5, ("leader",), True), (6, ("leader",), False), (5, ("round", "nodes/"), False)],
)
def test_what_was_written_at_a_revision_is_there_at_it(
    revision: int, scope: tuple[str, ...], contradicted: bool
) -> None:
    """New data may have grown to the very revision that was known, and lack what was written at it."""
    known = View().learn([Fact("leader", 5, leader("a", 5)), Fact("closed", 4, None)])
    assert known.contradicted_by(revision, scope, {}) is contradicted


def test_under_a_prefix_too() -> None:
    known = View().learn([Fact("nodes/a", 5, leader("a", 5))])
    assert known.contradicted_by(5, ("nodes/",), {})


def test_who_knows_nothing_is_contradicted_by_nothing() -> None:
    assert not View().contradicted_by(1, SCOPE, {"leader": leader("a", 1)})
