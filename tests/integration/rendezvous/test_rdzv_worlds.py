"""Worlds form, grow, shrink and keep their order: real handlers, one shared etcd."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from support.etcd import EtcdServer, wait_until
from support.nodes import PATIENCE, Node, NodeProcess, ids, records

from elastic.etcd import Client
from elastic.rendezvous import RendezvousGracefulExitError, RendezvousInfo, Standing

MakeNode = Callable[..., Node]
MakeProcess = Callable[..., NodeProcess]


def outcomes(joins: list[Future[RendezvousInfo]]) -> list[RendezvousInfo]:
    """The worlds of several nodes, by rank. They must be one and the same."""
    infos = sorted((join.result(PATIENCE) for join in joins), key=lambda info: info.rank)
    assert [info.rank for info in infos] == list(range(infos[0].world_size))
    assert len({(i.round, i.world_size, i.bootstrap_store_info, i.participants) for i in infos}) == 1
    return infos


def test_a_full_world_forms_at_once(node: MakeNode) -> None:
    """The last call is longer than this test may take, so it was not waited for."""
    nodes = [node("2:3", last_call_timeout=600) for _ in range(3)]
    infos = outcomes([each.join() for each in nodes])
    assert {ids(info)[info.rank] for info in infos} == {each.id for each in nodes}
    assert infos[0].round == 1
    assert infos[0].bootstrap_store_info.master_addr == "127.0.0.1"
    assert infos[0].bootstrap_store_info.master_port > 0


def test_a_world_of_min_nodes_forms_after_the_last_call(node: MakeNode) -> None:
    infos = outcomes([each.join() for each in (node("2:3"), node("2:3"))])
    assert infos[0].world_size == 2


def test_min_nodes_are_waited_for(node: MakeNode) -> None:
    first, second = node("2:3", last_call_timeout=0), node("2:3", last_call_timeout=0)
    early = first.join()
    time.sleep(0.5)  # a mistake would need a moment to show
    assert not early.done()
    assert [info.world_size for info in outcomes([early, second.join()])] == [2, 2]


def test_the_last_call_lets_a_third_node_in(node: MakeNode) -> None:
    joins = [each.join() for each in (node("2:4", last_call_timeout=8), node("2:4", last_call_timeout=8))]
    time.sleep(0.3)
    assert not any(join.done() for join in joins)
    joins.append(node("2:4", last_call_timeout=8).join())
    assert outcomes(joins)[0].world_size == 3


def test_a_late_node_is_announced_to_every_member_and_let_in(node: MakeNode) -> None:
    members = [node("2:3", last_call_timeout=0) for _ in range(2)]
    before = outcomes([each.join() for each in members])[0]
    late = node("2:3")
    arrival = late.join()
    for each in members:
        each.until_status(lambda status: status.nodes_waiting == 1, what="one waits")
        assert each.handler.num_nodes_waiting() == 1
        assert each.handler.status().standing is Standing.CURRENT
    assert not arrival.done()

    members[0].handler.regroup("to let a node in")
    members[1].until_status(lambda status: status.standing is Standing.SUPERSEDED, what="a newer round")
    assert members[1].handler.status().reason == "to let a node in"
    after = outcomes([arrival, *(each.join() for each in members)])[0]
    assert after.world_size == 3
    assert after.round == before.round + 1
    assert ids(after) == [*ids(before), late.id], "survivors keep their ranks, newcomers follow"
    assert after.bootstrap_store_info.master_addr == before.bootstrap_store_info.master_addr
    assert all(each.handler.num_nodes_waiting() == 0 for each in (*members, late))


def test_four_arrivals_cost_one_regroup(node: MakeNode) -> None:
    first = node("1:6", last_call_timeout=0, settle_timeout=5).follow()
    first.until_world(1)
    late = []
    for _ in range(4):
        late.append(node("1:6", settle_timeout=5).follow())
        time.sleep(0.3)
    for each in (first, *late):
        each.until_world(5)
    assert first.sizes == [1, 5]
    assert all(each.sizes == [5] for each in late)


def test_a_leave_is_known_at_once_and_closes_nothing(
    node: MakeNode, etcd: EtcdServer, client: Client, run_id: str
) -> None:
    """The lease would live for an hour, so what is seen here comes of the goodbye."""
    nodes = [node("1:3", ttl=3600).follow() for _ in range(3)]
    for each in nodes:
        each.until_world(3)
    order = ids(nodes[0].world)
    leaver = nodes.pop(1)
    assert leaver.close()
    assert f"nodes/{leaver.id}" not in records(client, run_id)
    for each in nodes:
        assert ids(each.until_world(2)) == [i for i in order if i != leaver.id]
        assert not each.handler.is_closed()
    assert "closed" not in records(client, run_id)


def test_a_killed_member_is_replaced_by_the_spare(
    node: MakeNode, process_of: MakeProcess, etcd: EtcdServer, run_id: str
) -> None:
    victim = process_of(etcd.endpoint, run_id, "2:2", ttl=2)
    member = node("2:2").follow()
    member.until_world(2)
    victim.until_world(2)
    spare = node("2:2").follow()
    wait_until(lambda: _wants(etcd, run_id, spare.id) == "SPARE", what="the spare")
    assert member.handler.num_nodes_waiting() == 0, "there is no room, so nobody is told of it"
    victim.kill()
    spare.until_world(2)
    assert ids(member.until_world(2, count=2)) == [member.id, spare.id]
    assert member.sizes == [2, 2]
    assert spare.sizes == [2]


def _wants(etcd: EtcdServer, run_id: str, node_id: str) -> str:
    with Client([etcd.endpoint]) as client:
        record = records(client, run_id).get(f"nodes/{node_id}", {})
    return str(record.get("want", ""))


def test_a_spare_takes_the_place_of_one_that_leaves(node: MakeNode, etcd: EtcdServer, run_id: str) -> None:
    members = [node("2:2").follow() for _ in range(2)]
    for each in members:
        each.until_world(2)
    spare = node("2:2").follow()
    wait_until(lambda: _wants(etcd, run_id, spare.id) == "SPARE", what="the spare")
    assert members[0].close()
    assert ids(spare.until_world(2)) == [members[1].id, spare.id]
    assert members[1].until_world(2, count=2).round == spare.world.round


def test_a_leader_that_dies_is_followed_by_another(
    node: MakeNode, process_of: MakeProcess, etcd: EtcdServer, client: Client, run_id: str
) -> None:
    leader = process_of(etcd.endpoint, run_id, "1:3", ttl=5, last_call_timeout=2)
    wait_until(lambda: "leader" in records(client, run_id), what="a leader")
    nodes = [node("1:3", last_call_timeout=2).follow() for _ in range(2)]
    first = leader.until_world(3)
    for each in nodes:
        each.until_world(3)  # or a world of 2 before it would be taken for the one after it
    assert first["rank"] == 0
    assert records(client, run_id)["leader"]["nodeId"] == first["id"]
    leader.kill()
    for each in nodes:
        assert ids(each.until_world(2)) == first["ids"][1:]
    assert records(client, run_id)["leader"]["nodeId"] in {each.id for each in nodes}


def test_a_newer_node_of_the_same_name_takes_its_place(node: MakeNode) -> None:
    older = node("1:1", node_name="a").follow()
    older.until_world(1)
    newer = node("1:1", node_name="a").follow()
    assert newer.until_world(1).round == 2
    older.until_over()
    assert older.ended is not None
    assert older.ended.standing is Standing.EVICTED


def test_shutdown_while_a_join_blocks(node: MakeNode, client: Client, run_id: str) -> None:
    only = node("2:2")
    blocked = only.join()
    wait_until(lambda: f"nodes/{only.id}" in records(client, run_id), what="the node's record")
    assert only.handler.shutdown()
    with pytest.raises(RendezvousGracefulExitError):
        blocked.result(PATIENCE)
    assert records(client, run_id, "nodes/") == {}
    assert only.handler.shutdown(), "a second time changes nothing"
    with pytest.raises(RendezvousGracefulExitError):
        only.handler.next_rendezvous()


def test_shutdown_before_anything_writes_nothing(node: MakeNode, client: Client, run_id: str) -> None:
    assert node("1:1").handler.shutdown()
    assert records(client, run_id) == {}


def test_the_store_of_a_round_is_shared_and_its_own(node: MakeNode) -> None:
    nodes = [node("2:2") for _ in range(2)]
    one, two = (info.store for info in outcomes([each.join() for each in nodes]))
    one.set("a", "first")
    assert two.get("a") == b"first"
    nodes[0].handler.regroup("once more")
    one, two = (info.store for info in outcomes([each.join() for each in nodes]))
    assert not two.check(["a"])


def test_announced_facts_are_in_the_world(node: MakeNode) -> None:
    each = node("1:1")
    each.handler.announce(role="trainer", local_world_size=3)
    (member,) = each.join().result(PATIENCE).participants
    assert (member.role, member.local_world_size, member.node_id) == ("trainer", 3, each.id)
    with pytest.raises(RuntimeError, match="before the first"):
        each.handler.announce(role="other", local_world_size=1)


def test_a_listener_may_be_slow_and_many(node: MakeNode) -> None:
    """A listener runs in the handler's thread; several hear the same."""
    each = node("1:1")
    heard = [threading.Event(), threading.Event()]
    for event in heard:
        assert each.handler.subscribe(event.set)
    each.join().result(PATIENCE)
    assert all(event.wait(PATIENCE) for event in heard)


def test_every_node_knows_the_one_lease_of_the_run(
    node: MakeNode, etcd: EtcdServer, run_id: str, client: Client
) -> None:
    """So what agents store goes with the run, and the next leader keeps the same lease alive."""
    nodes = [node("2:2"), node("2:2")]
    for info in outcomes([each.join() for each in nodes]):
        info.store.set(f"from-{info.rank}", "so")
    kvs = {kv.key: kv.lease for kv in client.get_prefix(f"/elastic/{run_id}/".encode()).kvs}
    leases = {lease for key, lease in kvs.items() if b"/nodes/" not in key and not key.endswith(b"/leader")}
    assert len(leases) == 1
    assert leases != {0}
