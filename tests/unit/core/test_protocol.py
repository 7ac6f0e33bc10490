"""Single cases of one node's protocol, each of which went wrong once or is easy to get wrong."""

from __future__ import annotations

from dataclasses import replace

from support.strategies import node, world_of

from elastic.rendezvous.core.actions import Commit, HoldLease, Put, Rest
from elastic.rendezvous.core.formation import member_of
from elastic.rendezvous.core.member import Standing
from elastic.rendezvous.core.protocol import Protocol
from elastic.rendezvous.core.records import Leader, Node, Outcome, Phase, Record, Round, Terminal, Want
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import CLOSED, LEADER, NODES, ROUND, Fact, Seen, node_key

RULES = Rules(min_nodes=1, max_nodes=5)
CONTROL = (ROUND, CLOSED, LEADER, node_key("a"))


def fact(key: str, record: Record, revision: int) -> Fact:
    return Fact(key, revision, Seen(record, revision, revision))


def ended(revision: int, *, token: str = "") -> Fact:
    terminal = Terminal(
        outcome=Outcome.SUCCEEDED,
        reason="so",
        exit_code=0,
        incarnation=1,
        round=3,
        node_id="z",
        job_token=token,
    )
    return fact(CLOSED, terminal, revision)


def do(protocol: Protocol, revision: int, *, now: float = 0.0) -> Commit:
    """Carries out the next transaction as a shell whose answer arrives."""
    action = protocol.next_action(now)
    assert isinstance(action, Commit), action
    keys = {o.key for o in action.operations}
    facts = [fact(o.key, o.record, revision) for o in action.operations if isinstance(o, Put)]
    facts += [Fact(o.key, revision, None) for o in action.operations if not isinstance(o, Put)]
    if action.claim is not None and action.claim.key not in keys:
        facts.append(fact(action.claim.key, action.claim.record, revision))
    protocol.learn(facts)
    protocol.committed(action)
    return action


def joining(rules: Rules = RULES) -> Protocol:
    """A node that holds a lease and has written nothing."""
    protocol = Protocol(node("a"), rules)
    protocol.join()
    assert isinstance(protocol.next_action(0.0), HoldLease)
    protocol.lease_held()
    return protocol


def running(*, led_by: str = "z") -> Protocol:
    """A member of the world of "a" and "b", in round 7, led by another node."""
    protocol = joining()
    protocol.learn([fact(LEADER, Leader(node_id=led_by), 5)])
    do(protocol, 10)
    protocol.learn([fact(ROUND, world_of("a", "b"), 11)])
    assert protocol.world is not None
    protocol.run(protocol.world)
    assert do(protocol, 12).step == "active"
    return protocol


def own_record(commit: Commit) -> Node:
    record = next(o.record for o in commit.operations if isinstance(o, Put))
    assert isinstance(record, Node)
    return record


def test_a_record_is_written_again_under_a_new_lease_even_where_it_looks_the_same() -> None:
    protocol = running()
    protocol.lease_lost()
    assert not protocol.registered
    assert isinstance(protocol.next_action(1.0), HoldLease)
    protocol.lease_held()
    assert not protocol.registered, "the record that is seen belongs to the lease before"
    assert own_record(do(protocol, 20)).want is Want.ACTIVE
    assert protocol.registered


def test_the_end_of_a_record_of_an_earlier_lease_evicts_nobody() -> None:
    protocol = running()
    protocol.lease_lost()
    protocol.lease_held()
    protocol.learn([Fact(node_key("a"), 15, None)])
    protocol.evict()
    assert not protocol.evicted
    do(protocol, 20)
    protocol.evict()
    assert protocol.verdict.standing is Standing.EVICTED
    assert protocol.next_action(1.0) == Rest()


def test_a_join_whose_answer_was_lost_is_a_join() -> None:
    protocol = joining()
    protocol.learn_all(10, CONTROL, {node_key("a"): Seen(node("a", Want.JOINING, 1), 10, 10)})
    protocol.learn([ended(11)])
    assert protocol.verdict.standing is Standing.CLOSED
    assert protocol.next_action(0.0) == Rest(), "it begins no new run after its own"


def test_late_news_of_the_end_of_an_earlier_run_ends_nobody() -> None:
    protocol = joining()
    do(protocol, 10)
    protocol.learn([ended(8), Fact(CLOSED, 9, None)])
    assert protocol.ended is None
    protocol.learn([ended(30)])
    assert protocol.ended is not None


def test_an_end_that_was_deleted_at_once_still_counts() -> None:
    protocol = running()
    protocol.learn([ended(30), Fact(CLOSED, 31, None)])
    assert protocol.verdict.standing is Standing.CLOSED


def test_a_close_is_done_once_and_reopens_nothing() -> None:
    protocol = joining()
    protocol.close("enough")
    assert do(protocol, 10).step == "close"
    assert protocol.ended is not None
    assert protocol.next_action(1.0) == Rest()


def test_a_close_ends_no_later_run_than_the_one_that_is_known() -> None:
    protocol = running()
    protocol.close("enough")
    action = protocol.next_action(1.0)
    assert isinstance(action, Commit)
    guards = {guard.key for guard in action.guards}
    assert guards == {CLOSED, ROUND}


def test_a_late_agent_of_an_ended_job_ends_too_and_one_of_another_job_begins_a_run() -> None:
    late = joining(replace(RULES, job_token="one"))
    late.learn([ended(5, token="one")])
    refusal = late.refusal()
    assert isinstance(refusal, Terminal)
    other = joining(replace(RULES, job_token="two"))
    other.learn([ended(5, token="one")])
    assert other.refusal() is None
    commit = do(other, 10)
    assert commit.step == "incarnate"
    record = commit.operations[1]
    assert isinstance(record, Put)
    assert isinstance(record.record, Round)
    assert (record.record.incarnation, record.record.round) == (2, 4)
    without = joining()
    without.learn([ended(5)])
    assert without.refusal() is None, "an empty token is nobody's"


def test_other_bounds_are_refused_while_the_run_lives() -> None:
    theirs = replace(world_of("z"), min_nodes=3, max_nodes=3)
    protocol = joining()
    protocol.learn([fact(ROUND, theirs, 5)])
    assert protocol.refusal() is None, "nobody leads: the run is dead, or will be led again in a moment"
    protocol.learn([fact(LEADER, Leader(node_id="y"), 6)])
    assert protocol.refusal() is None, "who leads now was not of that run, and has written nothing yet"
    protocol.learn([fact(LEADER, Leader(node_id="z"), 7)])
    assert "--nnodes=3:3" in str(protocol.refusal())
    protocol.learn([fact(LEADER, Leader(node_id="y"), 8), fact(ROUND, replace(theirs, nodes_waiting=1), 9)])
    assert "--nnodes=1:5" in str(protocol.refusal())


def test_who_came_to_lead_a_living_run_of_other_bounds_steps_back() -> None:
    theirs = replace(world_of("z"), min_nodes=3, max_nodes=3)
    protocol = joining()
    protocol.learn([fact(ROUND, theirs, 5)])
    do(protocol, 10)
    assert protocol.leads
    assert protocol.refusal() is None
    protocol.followed(11, {NODES + "z": Seen(node("z", Want.ACTIVE, 7), 4, 4)})
    assert protocol.refusal() is not None


def test_no_world_of_other_bounds_is_taken() -> None:
    protocol = joining()
    protocol.learn([fact(LEADER, Leader(node_id="b"), 5)])
    do(protocol, 10)
    protocol.learn([fact(ROUND, replace(world_of("b", "a"), max_nodes=3), 11)])
    assert protocol.world is None
    assert protocol.refusal() is not None


def test_a_sleeper_finds_its_successor_and_goes() -> None:
    protocol = running()
    protocol.lease_lost()
    protocol.lease_held()
    action = protocol.next_action(1.0)
    assert isinstance(action, Commit)
    assert ROUND in {guard.key for guard in action.guards}, "who comes back must know the newest world"
    successor = member_of(node("a2", name="a"))
    protocol.learn([fact(ROUND, replace(world_of("b"), round=9, world=(successor,)), 30)])
    assert protocol.verdict.standing is Standing.EVICTED


def test_a_newcomer_is_not_replaced_by_the_one_before_it() -> None:
    protocol = joining()
    protocol.learn([fact(ROUND, replace(world_of("b"), world=(member_of(node("a0", name="a")),)), 5)])
    assert not protocol.evicted


def test_everybody_campaigns_in_turn() -> None:
    protocol = running()
    protocol.learn([Fact(LEADER, 20, None)])
    first = protocol.next_action(100.0)
    assert isinstance(first, Commit)
    assert first.step == "campaign"
    outsider = joining()
    outsider.learn([fact(LEADER, Leader(node_id="z"), 5)])
    do(outsider, 10)
    outsider.learn([fact(ROUND, world_of("b", "c"), 11)])
    do(outsider, 12)
    outsider.learn([Fact(LEADER, 20, None)])
    rest = outsider.next_action(100.0)
    assert rest == Rest(100.0 + 2 * RULES.campaign_step)
    assert isinstance(outsider.next_action(100.0 + 2 * RULES.campaign_step), Commit)


def test_after_a_wipe_the_world_is_said_again() -> None:
    protocol = running()
    protocol.forget()
    assert isinstance(protocol.next_action(1.0), HoldLease)
    protocol.lease_held()
    assert do(protocol, 2).step == "active"
    protocol.followed(3, {node_key("a"): Seen(node("a"), 2, 2)})
    commit = protocol.next_action(1.0)
    assert isinstance(commit, Commit)
    assert commit.step == "restore"
    record = commit.operations[0]
    assert isinstance(record, Put)
    assert record.record == world_of("a", "b")


def test_a_round_older_than_ones_own_is_none_to_wait_for() -> None:
    protocol = running()
    protocol.forget()
    protocol.lease_held()
    protocol.learn([fact(LEADER, Leader(node_id="z"), 2), fact(ROUND, replace(world_of("c"), round=1), 3)])
    protocol.regroup("so")
    protocol.join()
    record = own_record(do(protocol, 4))
    assert (record.want, record.round) == (Want.JOINING, 8)


def test_a_leader_that_leads_no_more_stops_following() -> None:
    protocol = joining()
    do(protocol, 10)
    protocol.followed(11, {node_key("a"): Seen(node("a", Want.JOINING, 1), 10, 10)})
    assert do(protocol, 12).step == "open"
    protocol.learn([fact(LEADER, Leader(node_id="z"), 13)])
    assert type(protocol.next_action(1.0)).__name__ == "UnfollowNodes"
    protocol.unfollowed()
    assert protocol.next_action(1.0) == Rest()
    seen = protocol.view.round
    assert seen is not None
    assert seen.record.phase is Phase.OPEN


def test_a_job_that_has_ended_is_closed_no_more_and_the_next_one_goes_on() -> None:
    protocol = running()
    protocol.learn([ended(20)])
    protocol.close("so")
    opened = replace(world_of("c"), round=9, phase=Phase.OPEN, incarnation=2)
    protocol.learn([Fact(CLOSED, 21, None), fact(ROUND, opened, 21)])
    assert not isinstance(protocol.next_action(1.0), Commit)


def test_whoever_leaves_does_nothing_else_any_more() -> None:
    """An agent's threads may wish in any order."""
    protocol = running()
    protocol.leave("so")
    protocol.join()
    protocol.succeed()
    protocol.regroup("so")
    assert own_record(do(protocol, 20)).want is Want.LEAVING
