"""What the shell counts on, at every place where the records of a run may be kept."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from support.places import Node, Site
from support.strategies import node as node_record
from support.strategies import world_of

from elastic.rendezvous.backends.api import CommitResult, Learned, LeaseGone, Unreadable
from elastic.rendezvous.core.actions import Absent, Commit, Delete, Guard, Keep, Put, SameCreation, Unchanged
from elastic.rendezvous.core.records import Leader, Record, Want
from elastic.rendezvous.core.records import Node as NodeRecord
from elastic.rendezvous.core.view import LEADER, ROUND, STORE, Fact, node_key, store_prefix
from elastic.store import StoreError


def write(
    node: Node,
    *operations: Put | Delete,
    guards: tuple[Guard, ...] = (),
    claim: Put | None = None,
) -> CommitResult:
    return node.backend.commit(Commit(step="test", why="", guards=guards, operations=operations, claim=claim))


def own(node: Node, want: Want = Want.JOINING, cause: str = "") -> Put:
    return Put(node_key(node.id), node_record(node.id, want, cause=cause), Keep.NODE)


def told(node: Node, count: int) -> list[Fact]:
    """The next facts that the node is told of, so many at least."""
    facts: list[Fact] = []
    while len(facts) < count:
        facts.extend(node.inbox.find(Learned).facts)
    return facts


def until(node: Node, key: str, *, deleted: bool) -> Fact:
    """The first fact to come that says so of a key."""
    while True:
        for fact in node.inbox.find(Learned).facts:
            if fact.key == key and (fact.seen is None) is deleted:
                return fact


# -- transactions ------------------------------------------------------------------------------------


def test_what_one_commits_another_learns_and_reads(site: Site) -> None:
    a, b = site.node(), site.node()
    result = write(a, Put(ROUND, world_of("n0"), Keep.RETENTION), guards=(Absent(ROUND),))
    assert result.succeeded
    (fact,) = result.facts
    assert fact.seen is not None
    assert (fact.key, fact.seen.record) == (ROUND, world_of("n0"))
    assert fact.revision == fact.seen.mod_revision == fact.seen.create_revision
    assert told(b, 1) == [fact]
    reading = b.backend.read(nodes=False)
    assert reading.found == {ROUND: fact.seen}
    assert reading.revision >= fact.revision > b.first.revision


def test_a_guard_that_does_not_hold_refuses_all_of_it(site: Site) -> None:
    a = site.node()
    first = write(a, Put(ROUND, world_of("n0"), Keep.RETENTION)).facts[0].revision
    second = write(a, Put(ROUND, world_of("n0", "n1"), Keep.RETENTION)).facts[0].revision
    assert second > first
    wrong: list[Guard] = [
        Absent(ROUND),
        Unchanged(ROUND, first),
        Unchanged(LEADER, first),
        SameCreation(ROUND, second),
        SameCreation(LEADER, first),
    ]
    for guard in wrong:
        assert not write(a, own(a), Delete(ROUND), guards=(Absent(LEADER), guard)).succeeded
    assert set(a.backend.survey().found) == {ROUND}
    right = (Unchanged(ROUND, second), SameCreation(ROUND, first), Absent(LEADER), SameCreation(LEADER, 0))
    assert write(a, own(a), Delete(ROUND), guards=right).succeeded
    assert set(a.backend.survey().found) == {node_key("n0")}


def test_a_claim_is_won_by_the_first_and_told_to_the_second(site: Site) -> None:
    a, b = site.node(), site.node()
    for each in (a, b):
        claim = Put(LEADER, Leader(node_id=each.id), Keep.NODE)
        result = write(each, own(each), claim=claim)
        assert result.succeeded
        (holder,) = [fact for fact in result.facts if fact.key == LEADER]
        assert holder.seen is not None
        assert holder.seen.record == Leader(node_id="n0")
    assert set(a.backend.survey().found) == {LEADER, node_key("n0"), node_key("n1")}


def test_of_many_that_create_one_key_at_once_one_does(site: Site) -> None:
    nodes = [site.node() for _ in range(4)]

    def campaign(node: Node) -> bool:
        put = Put(LEADER, Leader(node_id=node.id), Keep.NODE)
        return write(node, put, guards=(Absent(LEADER),)).succeeded

    with ThreadPoolExecutor(len(nodes)) as pool:
        won = [node.id for node, succeeded in zip(nodes, pool.map(campaign, nodes), strict=True) if succeeded]
    assert len(won) == 1
    assert site.nodes[0].backend.read(nodes=False).found[LEADER].record == Leader(node_id=won[0])


def test_writers_of_keys_of_their_own_do_not_fail_for_each_others_sake(site: Site) -> None:
    nodes = [site.node() for _ in range(4)]

    def speak(node: Node) -> list[bool]:
        return [write(node, own(node, cause=str(n))).succeeded for n in range(5)]

    with ThreadPoolExecutor(len(nodes)) as pool:
        assert all(all(done) for done in pool.map(speak, nodes))
    found = nodes[0].backend.survey().found
    assert {key: getattr(seen.record, "cause", "") for key, seen in found.items()} == {
        node_key(node.id): "4" for node in nodes
    }


# -- news --------------------------------------------------------------------------------------------


def test_what_a_node_says_is_told_in_order_and_nothing_is_left_out(site: Site) -> None:
    a, b = site.node(), site.node()
    b.backend.follow_nodes()
    causes = [str(number) for number in range(5)]
    for cause in causes:
        write(a, own(a, cause=cause))
    write(a, Delete(node_key(a.id)))
    facts = told(b, len(causes) + 1)
    assert [getattr(fact.seen and fact.seen.record, "cause", None) for fact in facts] == [*causes, None]
    revisions = [fact.revision for fact in facts]
    assert revisions == sorted(set(revisions))
    assert {fact.seen.create_revision for fact in facts if fact.seen} == {revisions[0]}


def test_the_latest_of_a_round_is_told(site: Site) -> None:
    a, b = site.node(), site.node()
    records: list[Record] = [world_of(*ids) for ids in (["a"], ["a", "b"], ["b"])]
    for record in records:
        write(a, Put(ROUND, record, Keep.RETENTION))
    last = told(b, 1)[-1]
    while last.seen is None or last.seen.record != records[-1]:
        last = told(b, 1)[-1]
    write(a, Delete(ROUND))
    until(b, ROUND, deleted=True)


def test_news_of_nodes_is_for_who_follows_them(site: Site) -> None:
    leader, other, third = site.node(), site.node(), site.node()
    write(other, own(other))
    assert set(leader.backend.follow_nodes().found) >= {node_key(other.id)}
    write(other, own(other, Want.DONE))
    write(other, own(other, Want.LEAVING))
    wants: list[Want] = []
    while Want.LEAVING not in wants:
        records = [fact.seen.record for fact in told(leader, 1) if fact.seen is not None]
        wants += [record.want for record in records if isinstance(record, NodeRecord)]
    assert wants[-2:] == [Want.DONE, Want.LEAVING]
    leader.backend.unfollow_nodes()
    write(other, own(other, Want.JOINING))
    write(other, Put(ROUND, world_of("n1"), Keep.RETENTION))
    assert {fact.key for fact in told(leader, 1)} == {ROUND}
    assert {fact.key for fact in told(third, 1)} == {ROUND}, "who never followed hears of no other node"


def test_a_node_follows_its_own_record(site: Site) -> None:
    a, b = site.node(), site.node()
    write(a, own(a))
    until(a, node_key(a.id), deleted=False)
    write(b, Delete(node_key(a.id)))
    until(a, node_key(a.id), deleted=True)
    assert a.backend.lease_lives(), "that it was deleted says nothing of the lease"


def test_a_record_that_cannot_be_read_is_named_and_the_others_are_read(site: Site) -> None:
    a, b = site.node(), site.node()
    write(a, own(a), Put(ROUND, world_of("n0"), Keep.RETENTION))
    until(b, ROUND, deleted=False)
    site.spoil(ROUND)
    assert b.inbox.find(Unreadable).key == ROUND
    reading = a.backend.read(nodes=True)
    assert set(reading.found) == {node_key("n0")}
    assert ROUND in str(reading.unreadable[ROUND])
    write(a, Put(ROUND, world_of("n1"), Keep.RETENTION))
    until(b, ROUND, deleted=False)
    assert a.backend.read(nodes=False).unreadable == {}


# -- leases ------------------------------------------------------------------------------------------


def test_a_lease_that_is_dropped_takes_its_keys_with_it_at_once(site: Site) -> None:
    a, b = site.node(), site.node()
    b.backend.follow_nodes()
    write(a, own(a), claim=Put(LEADER, Leader(node_id=a.id), Keep.NODE))
    until(b, node_key(a.id), deleted=False)
    assert a.backend.drop_lease()
    until(b, node_key(a.id), deleted=True)
    assert b.backend.survey().found == {}
    assert not a.backend.lease_lives()
    with pytest.raises(LeaseGone):
        write(a, own(a))
    assert write(a, Put(ROUND, world_of("n0"), Keep.RETENTION)).succeeded, "which needs no lease"
    a.backend.hold_lease()
    assert write(a, own(a)).succeeded


def test_the_lease_of_a_node_that_is_silent_ends(site: Site) -> None:
    site.set_ttl(4)
    a, b = site.node(), site.node()
    b.backend.follow_nodes()
    write(a, own(a), Put(ROUND, world_of("n0"), Keep.RETENTION))
    until(b, node_key(a.id), deleted=False)
    site.nodes.remove(a)
    a.backend.close()
    until(b, node_key(a.id), deleted=True)
    assert set(b.backend.survey().found) == {ROUND}
    assert b.backend.lease_lives(), "who speaks keeps its lease"


def test_to_close_waits_for_no_heartbeat(site: Site) -> None:
    site.set_ttl(300)  # 100 s from one to the next
    a, b = site.node(), site.node()
    write(a, Put(ROUND, world_of("n0"), Keep.RETENTION))
    told(b, 1)
    started = time.monotonic()
    while site.nodes:
        site.nodes.pop().backend.close()
    assert time.monotonic() - started < 50


def test_a_key_that_another_lease_takes_over_outlives_the_first(site: Site) -> None:
    a, b = site.node(), site.node()
    write(a, own(a))
    write(b, Put(node_key(a.id), node_record(a.id), Keep.NODE))
    a.backend.drop_lease()
    assert set(b.backend.survey().found) == {node_key(a.id)}


# -- the agents' store -------------------------------------------------------------------------------


def test_the_agents_of_a_round_share_a_store_of_that_round(site: Site) -> None:
    a, b = site.node(), site.node()
    write(a, Put(ROUND, world_of("n0"), Keep.RETENTION))
    rounds = [store_prefix(number) for number in (1, 2)]
    for prefix in rounds:
        a.backend.store(prefix).set("key", prefix)
        assert b.backend.store(prefix).get("key") == prefix.encode()
    assert not b.backend.store(rounds[0]).check(["other"])
    if not site.lists_keys:
        return  # then they stay
    write(a, Delete(rounds[0]))
    assert [b.backend.store(prefix).check(["key"]) for prefix in rounds] == [False, True]
    write(a, Delete(STORE))
    assert not b.backend.store(rounds[1]).check(["key"])
    assert set(a.backend.survey().found) == {ROUND}


def test_a_wait_in_the_store_of_a_round_is_bounded(site: Site) -> None:
    a = site.node()
    store = a.backend.store(store_prefix(1))
    assert store.timeout == timedelta(minutes=5)
    with pytest.raises(StoreError, match="never"):
        store.wait(["never"], timedelta(seconds=0.2))
