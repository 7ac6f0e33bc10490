"""What holds of a node's own record, and of what it makes of the shared state."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.strategies import IDS, member_states

from elastic.rendezvous.core.member import Self, Stance, Standing, arrived, desired, judge, replaced
from elastic.rendezvous.core.records import Want
from elastic.rendezvous.core.view import ROUND, Fact, Seen, View, node_key

PROFILE = settings(max_examples=300, deadline=None, derandomize=True, database=None)
WITHOUT_WORKERS = (Want.JOINING, Want.WAITING, Want.SPARE)


def told(view: View, me: Self) -> View:
    """The view once the record that the node should have is written."""
    record = desired(me, view)
    if record is None:
        return view
    return view.learn([Fact(node_key("a"), 1000, Seen(record, 1000, 1000))])


@PROFILE
@given(member_states())
def test_a_record_that_was_written_stays_right(state: tuple[Self, View]) -> None:
    me, view = state
    assert desired(me, told(view, me)) == desired(me, view)


def test_a_record_says_what_its_agent_does() -> None:
    wants: Counter[Want] = Counter()

    @PROFILE
    @given(member_states())
    def check(state: tuple[Self, View]) -> None:
        me, view = state
        record = desired(me, view)
        committed = None if view.round is None else view.round.record
        if record is None:
            assert me.stance is Stance.ABSENT
            return
        wants[record.want] += 1
        assert (record.node_id, record.name, record.address) == ("a", "a", "a.test")
        # S5: it says that it can be in a later round only when its workers are stopped.
        assert (record.want in WITHOUT_WORKERS) == (me.stance is Stance.JOINING)
        if record.want in (Want.JOINING, Want.STOPPING):
            assert record.round > me.round
            if committed is not None:
                assert record.round >= committed.round
        if record.want in (Want.WAITING, Want.SPARE):
            assert committed is not None
            assert committed.formed
            assert committed.rank_of("a") is None
            assert record.round == committed.round >= me.round
            assert (record.want is Want.SPARE) == committed.full
        if record.want in (Want.ACTIVE, Want.DONE, Want.LEAVING):
            assert record.round == me.round
        if record.want in (Want.ACTIVE, Want.DONE) and committed is not None and committed.round == me.round:
            assert record.rank == committed.rank_of("a")

    check()
    assert all(wants[want] > 3 for want in Want), wants


def test_a_world_is_given_once_and_is_then_the_current_one() -> None:
    given_worlds = 0

    @PROFILE
    @given(member_states())
    def check(state: tuple[Self, View]) -> None:
        nonlocal given_worlds
        me, view = state
        world = arrived(me, view)
        if world is None:
            return
        given_worlds += 1
        assert me.stance is Stance.JOINING
        assert world.rank_of("a") is not None
        assert world.round > me.round
        running = replace(me, stance=Stance.RUNNING, round=world.round, world=world)
        assert judge(running, view).standing is Standing.CURRENT
        record = desired(running, view)
        assert record is not None
        assert (record.want, record.rank) == (Want.ACTIVE, world.rank_of("a"))
        rejoining = replace(running, stance=Stance.JOINING, world=None)
        assert arrived(rejoining, view) is None
        again = desired(rejoining, view)
        assert again is not None
        assert (again.want, again.round) == (Want.JOINING, world.round + 1)

    check()
    assert given_worlds > 10


def test_only_a_newer_round_or_another_world_supersedes() -> None:
    standings: Counter[Standing] = Counter()

    @PROFILE
    @given(member_states())
    def check(state: tuple[Self, View]) -> None:
        me, view = state
        verdict = judge(me, view)
        standings[verdict.standing] += 1
        event(verdict.standing.name)
        seen = view.round
        newer = seen is not None and seen.record.round > me.round
        other = (
            seen is not None
            and me.world is not None
            and seen.record.formed
            and seen.record.round == me.round
            and seen.record.world != me.world.world
        )
        assert verdict.standing is (Standing.SUPERSEDED if newer or other else Standing.CURRENT)
        gone = view.learn([Fact(ROUND, 2000, None)])
        assert judge(me, gone).standing is Standing.CURRENT, "a missing round stops no healthy worker"

    check()
    assert min(standings[s] for s in (Standing.CURRENT, Standing.SUPERSEDED)) > 50


def test_a_node_is_replaced_by_another_of_its_name_in_a_newer_world_only() -> None:
    found = 0

    @settings(PROFILE, max_examples=2 * PROFILE.max_examples)  # names rarely meet
    @given(member_states(), st.sampled_from(IDS))
    def check(state: tuple[Self, View], name: str) -> None:
        nonlocal found
        me, view = state
        me = replace(me, template=replace(me.template, name=name))
        committed = None if view.round is None else view.round.record
        names = [] if committed is None else [m.name for m in committed.world if m.node_id != "a"]
        expected = (
            committed is not None
            and 0 < me.round < committed.round
            and committed.rank_of("a") is None
            and name in names
        )
        assert replaced(me, view) == expected
        found += expected

    check()
    assert found > 5
