"""What holds of every decision of a leader, whatever it knows.

One generator feeds all checks, since a state is dear; counters hold it to reaching what matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import event, given, settings
from support.strategies import LeaderState, leader_states

from elastic.rendezvous.core.actions import Absent, Action, Commit, Put, Rest, SameCreation, Unchanged
from elastic.rendezvous.core.formation import member_of
from elastic.rendezvous.core.leader import decide
from elastic.rendezvous.core.memory import observe
from elastic.rendezvous.core.records import Outcome, Round, Terminal, Trigger, Want
from elastic.rendezvous.core.view import CLOSED, LEADER, ROUND

PROFILE = settings(max_examples=2000, deadline=None, derandomize=True, database=None)
RAN = (Want.ACTIVE, Want.DONE, Want.LEAVING)

Check = Callable[[LeaderState, Action], str | None]
"""Holds one decision against one rule; names what was special about it, if anything was."""


def decision(state: LeaderState) -> Action:
    return decide("a", state.view, memory=state.memory, rules=state.rules, now=state.now)


def written(action: Action, key: str) -> object:
    """The record that an action writes to a key; None for none."""
    if not isinstance(action, Commit):
        return None
    return next((o.record for o in action.operations if isinstance(o, Put) and o.key == key), None)


def ids(record: Round) -> set[str]:
    return {member.node_id for member in record.world}


def the_same_knowledge_gives_the_same_decision(state: LeaderState, action: Action) -> str | None:
    again = observe(state.memory, state.view, state.rules, state.now)
    assert again == state.memory
    assert action == decide("a", state.view, memory=again, rules=state.rules, now=state.now)
    return action.step if isinstance(action, Commit) else "rest"


def nothing_is_written_without_guards(state: LeaderState, action: Action) -> str | None:
    if isinstance(action, Commit):
        assert Absent(CLOSED) in action.guards
        assert SameCreation(LEADER, 50) in action.guards
        if any(o.key in (ROUND, CLOSED) for o in action.operations):
            seen = state.view.round
            assert (Absent(ROUND) if seen is None else Unchanged(ROUND, seen.mod_revision)) in action.guards
    return None


def a_closed_job_moves_no_more(state: LeaderState, action: Action) -> str | None:
    if state.view.closed is None:
        return None
    assert action == Rest()
    return "closed"


def rest_ends_in_the_future_and_then_something_happens(state: LeaderState, action: Action) -> str | None:
    if not isinstance(action, Rest) or action.until is None:
        return None
    assert action.until > state.now
    later = observe(state.memory, state.view, state.rules, action.until)
    then = decide("a", state.view, memory=later, rules=state.rules, now=action.until)
    assert not isinstance(then, Rest) or then.until is None or then.until > action.until
    return "rest until"


def rounds_only_go_forward(state: LeaderState, action: Action) -> str | None:
    record, seen = written(action, ROUND), state.view.round
    if not isinstance(record, Round):
        return None
    before = None if seen is None else seen.record
    if before is not None and record.round == before.round:
        assert record.formed
        assert record.incarnation == before.incarnation
        if before.formed:
            assert record.world == before.world
            assert (record.master_addr, record.master_port) == (before.master_addr, before.master_port)
        return None
    nodes = [s.record for s in state.view.nodes.values()]
    assert not record.formed
    assert before is None or record.round > before.round
    assert all(record.round > node.round for node in nodes if node.want in RAN)
    return "a new round"


def failures_are_counted_one_by_one(state: LeaderState, action: Action) -> str | None:
    record, seen = written(action, ROUND), state.view.round
    if not isinstance(record, Round) or seen is None or record.incarnation > seen.record.incarnation:
        return None
    more = record.failures - seen.record.failures
    assert more in (0, 1)
    if more == 0:
        return None
    nodes = state.view.nodes
    lost = ids(seen.record) - nodes.keys()
    assert lost <= state.memory.done, "a lost node explains a failure"
    assert not seen.record.departed
    assert any(nodes[i].record.failure is not None for i in ids(seen.record) - lost)
    return "a failure counted"


def no_more_wait_than_there_is_room_for(state: LeaderState, action: Action) -> str | None:
    record, seen = written(action, ROUND), state.view.round
    if not isinstance(record, Round) or seen is None or not (seen.record.formed and record.formed):
        return None
    nodes = state.view.nodes
    waiting = [s for s in nodes.values() if s.record.want is Want.WAITING]
    assert 0 <= record.nodes_waiting <= max(0, min(len(waiting), state.rules.max_nodes - len(record.world)))
    if any(nodes[i].record.want is Want.DONE for i in ids(record) & nodes.keys()):
        assert record.nodes_waiting == 0
    return "announced"


def a_new_round_says_what_opened_it(state: LeaderState, action: Action) -> str | None:
    record, seen = written(action, ROUND), state.view.round
    if not isinstance(record, Round) or record.formed:
        return None
    assert record.trigger is not Trigger.UNTOLD
    members = () if seen is None else seen.record.world
    nodes = state.view.nodes
    if record.trigger is Trigger.FAILURE:
        assert any(nodes[m.node_id].record.failure for m in members if m.node_id in nodes)
    if record.trigger in (Trigger.LOST, Trigger.LEFT) and record.cause.endswith(("was lost", "left")):
        left = {m.name for m in members if m.node_id in state.memory.left}
        assert (record.trigger is Trigger.LEFT) == (record.cause.split()[0] in left) or not record.world
    return f"opened for {record.trigger.value}"


def members_that_drain_are_announced(state: LeaderState, action: Action) -> str | None:
    record, seen = written(action, ROUND), state.view.round
    nodes = state.view.nodes
    if seen is None or not seen.record.formed:
        return None
    draining = [i for i in ids(seen.record) & nodes.keys() if nodes[i].record.draining]
    if isinstance(record, Round):
        assert record.nodes_leaving == (len(draining) if record.formed else 0)
        return "leaving announced" if record.nodes_leaving != seen.record.nodes_leaving else None
    if isinstance(action, Rest) and state.view.closed is None:
        assert seen.record.nodes_leaving == len(draining), "the others are told before there is rest"
    return None


def who_is_done_and_may_be_gone_is_written_down(state: LeaderState, action: Action) -> str | None:
    record, seen, memory = written(action, ROUND), state.view.round, state.memory
    if seen is None or not seen.record.formed or state.view.closed is not None:
        return None
    gone = {"a", *memory.left, *memory.missing_since}
    finished = tuple(r for r, m in enumerate(seen.record.world) if m.node_id in memory.done & gone)
    if isinstance(record, Round):
        assert record.finished == (finished if record.formed else ())
        return "finished announced" if record.finished and record.finished != seen.record.finished else None
    if isinstance(action, Rest):
        assert seen.record.finished == finished, "a later leader would take it for lost"
    return None


def a_world_is_formed_of_those_who_joined(state: LeaderState, action: Action) -> str | None:
    record, seen = written(action, ROUND), state.view.round
    if not isinstance(record, Round) or seen is None or seen.record.formed or not record.formed:
        return None
    before, nodes, rules = seen.record, state.view.nodes, state.rules
    assert rules.min_nodes <= len(record.world) <= rules.max_nodes
    assert (record.min_nodes, record.max_nodes) == (rules.min_nodes, rules.max_nodes)
    assert len(ids(record)) == len(record.world)
    joined = {i for i, s in nodes.items() if (s.record.want, s.record.round) == (Want.JOINING, before.round)}
    assert ids(record) <= joined
    assert len(record.world) == min(len(joined), rules.max_nodes)
    assert all(member == member_of(nodes[member.node_id].record) for member in record.world)
    first = nodes[record.world[0].node_id].record
    assert (record.master_addr, record.master_port) == (first.address, first.master_port)
    there = {i for i in ids(before) - state.memory.left if i in nodes}
    assert there <= joined, "a member that lives is waited for"
    if record.full:
        return "formed full"
    if before.world:
        return "formed again"
    assert state.now >= 100.0 + rules.last_call
    return "formed at the last call"


def a_job_ends_for_a_reason(state: LeaderState, action: Action) -> str | None:
    end, seen = written(action, CLOSED), state.view.round
    if not isinstance(end, Terminal):
        return None
    assert seen is not None
    nodes = {i: s.record for i, s in state.view.nodes.items()}
    members = [nodes[i] for i in (ids(seen.record) & nodes.keys()) - state.memory.left]
    if end.outcome is Outcome.SUCCEEDED:
        assert seen.record.formed
        assert all(node.want is Want.DONE for node in members)
        assert state.memory.done
        long_ago = state.now - state.rules.rejoin_grace
        lost = {i for i, since in state.memory.missing_since.items() if since <= long_ago}
        gone = state.memory.left | lost
        assert ids(seen.record) - gone or ids(seen.record) <= state.memory.done, "it was killed, and not done"
        return "succeeded"
    assert end.outcome is Outcome.FAILED
    assert not seen.record.formed or len(seen.record.world) == 1, "there may be others to hear of"
    assert end.failure is not None
    assert end.failure.final
    assert end.exit_code == end.failure.exit_code
    assert end.failure in [node.failure for node in members]
    assert all(node.round >= seen.record.round for node in members), "everybody that lives is heard first"
    return "failed"


CHECKS: tuple[Check, ...] = (
    the_same_knowledge_gives_the_same_decision,
    nothing_is_written_without_guards,
    a_closed_job_moves_no_more,
    rest_ends_in_the_future_and_then_something_happens,
    rounds_only_go_forward,
    failures_are_counted_one_by_one,
    no_more_wait_than_there_is_room_for,
    a_new_round_says_what_opened_it,
    members_that_drain_are_announced,
    who_is_done_and_may_be_gone_is_written_down,
    a_world_is_formed_of_those_who_joined,
    a_job_ends_for_a_reason,
)
REACHED = (
    *("open", "form", "announce", "evict", "close", "rest", "rest until", "closed", "a new round"),
    *(
        "a failure counted",
        "announced",
        "leaving announced",
        "finished announced",
        "formed full",
        "formed again",
        "formed at the last call",
    ),
    *("succeeded", "failed", "opened for FAILURE", "opened for LOST", "opened for LEFT"),
    *("opened for ARRIVAL", "opened for START", "opened for REQUEST", "opened for RECOVERY"),
)


def test_every_decision_keeps_the_rules() -> None:
    seen: Counter[str] = Counter()

    @PROFILE
    @given(leader_states())
    def hold(state: LeaderState) -> None:
        action = decision(state)
        for check in CHECKS:
            special = check(state, action)
            if special is not None:
                event(special)
                seen[special] += 1

    hold()
    assert {what: seen[what] for what in REACHED if seen[what] < 3} == {}
