"""Knowledge only moves forward, whatever the order in which it comes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import node

from elastic.rendezvous.core.formation import assemble, member_of
from elastic.rendezvous.core.records import Leader, Record
from elastic.rendezvous.core.view import CLOSED, LEADER, NODES, ROUND, Fact, Seen, View, node_key

PROFILE = settings(max_examples=200, deadline=None, derandomize=True, database=None)
KEYS = (LEADER, node_key("a"), node_key("b"), node_key("c"))


@st.composite
def histories(draw: st.DrawFn) -> list[Fact]:
    """A history of a few keys: each revision writes or deletes one of them."""
    facts = []
    for revision in range(1, draw(st.integers(1, 12)) + 1):
        key = draw(st.sampled_from(KEYS))
        record: Record = node(key.removeprefix(NODES))
        if key == LEADER:
            record = Leader(node_id=str(revision))
        deleted = draw(st.booleans())
        facts.append(Fact(key, revision, None if deleted else Seen(record, revision, revision)))
    return facts


def state_at(facts: list[Fact], revision: int) -> dict[str, Seen[Record]]:
    """What a read at a revision finds."""
    found: dict[str, Seen[Record]] = {}
    for fact in facts[:revision]:
        if fact.seen is None:
            found.pop(fact.key, None)
        else:
            found[fact.key] = fact.seen
    return found


@PROFILE
@given(histories().flatmap(lambda facts: st.tuples(st.just(facts), st.permutations(facts))), st.data())
def test_the_order_of_news_does_not_matter(pair: tuple[list[Fact], list[Fact]], data: st.DataObject) -> None:
    facts, shuffled = pair
    cut = data.draw(st.integers(0, len(shuffled)))
    view = View().learn(shuffled[:cut]).learn(shuffled[cut:])
    assert view.entries == state_at(facts, len(facts))
    assert view.learn(facts) == view, "news heard again is no news"


@PROFILE
@given(histories(), st.data())
def test_late_news_does_not_undo_a_read(facts: list[Fact], data: st.DataObject) -> None:
    revision = data.draw(st.integers(0, len(facts)))
    before = data.draw(st.integers(0, revision))
    scope = (ROUND, CLOSED, LEADER, node_key("a"))
    found = {key: seen for key, seen in state_at(facts, revision).items() if key in scope}
    view = View().learn(facts[:before]).read(revision, scope, found)
    late = view.learn(facts[:revision])
    assert {k: v for k, v in late.entries.items() if k in scope} == found
    assert {k: v for k, v in view.entries.items() if k in scope} == found


@PROFILE
@given(histories(), st.data())
def test_reading_and_watching_come_to_the_same(facts: list[Fact], data: st.DataObject) -> None:
    revision = data.draw(st.integers(0, len(facts)))
    scope = (LEADER, NODES)
    view = View().learn(facts[:revision]).read(revision, scope, state_at(facts, revision))
    assert view.learn(facts[revision:]).entries == state_at(facts, len(facts))


@PROFILE
@given(histories(), st.data())
def test_who_stops_following_keeps_its_own_and_forgets_no_deletion(
    facts: list[Fact], data: st.DataObject
) -> None:
    kept = View().learn(facts).without_nodes("a")
    wanted = (LEADER, node_key("a"))
    assert kept.entries == {k: v for k, v in state_at(facts, len(facts)).items() if k in wanted}
    late = [fact for fact in facts if fact.key in wanted]
    assert kept.learn(late).entries == kept.entries


ids = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@PROFILE
@given(ids, ids, st.integers(1, 8))
def test_survivors_come_first_in_their_order_then_arrivals_in_theirs(
    before: list[str], ready: list[str], limit: int
) -> None:
    previous = [member_of(node(i)) for i in before]
    world = [member.node_id for member in assemble(previous, [node(i) for i in ready], limit=limit)]
    survivors = [i for i in before if i in ready]
    newcomers = [i for i in ready if i not in before]
    assert world == (survivors + newcomers)[:limit]
