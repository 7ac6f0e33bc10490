"""What etcd and its leases can do to a running world: nothing, as long as no newer round exists."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from support.etcd import EtcdServer, wait_until
from support.nodes import Node, NodeProcess, ids, out_of_sight, records

from elastic.etcd import Client
from elastic.rendezvous import Outcome, Standing, Terminal
from elastic.rendezvous.codec import encode

MakeNode = Callable[..., Node]
MakeProcess = Callable[..., NodeProcess]
MakeServer = Callable[..., EtcdServer]


def world_of(nodes: list[Node], size: int) -> list[str]:
    for each in nodes:
        each.until_world(size)
    return ids(nodes[0].world)


def lease_of(client: Client, run_id: str, node: Node) -> int:
    kv = client.get(f"/elastic/{run_id}/nodes/{node.id}".encode())
    return 0 if kv is None else kv.lease


def undisturbed(nodes: list[Node], worlds: int = 1) -> bool:
    return all(
        len(each.worlds) == worlds and each.handler.status().standing is Standing.CURRENT for each in nodes
    )


def wait_registered(client: Client, run_id: str, nodes: list[Node], *, but: set[int]) -> None:
    """Until each node has a record under a lease that is none of `but`."""

    def there() -> bool:
        return all(lease_of(client, run_id, each) not in {0, *but} for each in nodes)

    wait_until(there, seconds=40, what="the records of all nodes, under new leases")


def still_works(nodes: list[Node], newcomer: Node, size: int) -> None:
    """The nodes can go on to another world, with a new node."""
    newcomer.follow().until_world(size)
    for each in nodes:
        each.until(lambda each=each: each.worlds[-1].world_size == size, what=f"a world of {size}")  # type: ignore[misc]


@pytest.mark.parametrize("everybody", [False, True])
def test_revoked_leases_restart_nobody(node: MakeNode, client: Client, run_id: str, everybody: bool) -> None:
    nodes = [node("1:4", rejoin_grace=30).follow() for _ in range(3)]
    order = world_of(nodes, 3) if _grown(nodes, 3) else []
    assert len(order) == 3
    worlds = [len(each.worlds) for each in nodes]
    victims = nodes if everybody else nodes[1:2]
    leases = {lease_of(client, run_id, each) for each in victims}
    for lease in leases:
        client.lease_revoke(lease)
    wait_registered(client, run_id, victims, but=leases)
    assert [len(each.worlds) for each in nodes] == worlds
    assert all(each.handler.status().standing is Standing.CURRENT for each in nodes)
    still_works(nodes, node("1:4"), 4)


def _grown(nodes: list[Node], size: int) -> bool:
    for each in nodes:
        each.until(lambda each=each: size in each.sizes, what=f"a world of {size}")  # type: ignore[misc]
    return True


def test_a_frozen_etcd_restarts_nobody(etcd_server: MakeServer, node_of: MakeNode, run_id: str) -> None:
    """It stands still for longer than the leases live. Its own clock of leases stands still with it."""
    server = etcd_server()
    conf = {"ttl": 2, "read_timeout": 2, "rejoin_grace": 10}
    nodes = [node_of(server.endpoint, run_id, "3:4", **conf).follow() for _ in range(3)]
    world_of(nodes, 3)
    server.pause()
    for each in nodes:
        each.until_status(lambda status: not status.connected, what="the outage to be seen")
    time.sleep(4)  # twice the leases' time
    assert undisturbed(nodes)
    server.resume()
    for each in nodes:
        each.until_status(lambda status: status.connected, what="etcd to be back")
    still_works(nodes, node_of(server.endpoint, run_id, "3:4", **conf), 4)
    assert all(each.sizes == [3, 4] for each in nodes)


def test_a_restarted_etcd_restarts_nobody(etcd_server: MakeServer, node_of: MakeNode, run_id: str) -> None:
    server = etcd_server()
    conf = {"ttl": 2, "read_timeout": 2, "rejoin_grace": 10}
    nodes = [node_of(server.endpoint, run_id, "3:4", **conf).follow() for _ in range(3)]
    order = world_of(nodes, 3)
    server.kill()
    for each in nodes:
        each.until_status(lambda status: not status.connected, what="the outage to be seen")
    time.sleep(4)
    server.start().wait_ready()
    for each in nodes:
        each.until_status(lambda status: status.connected, what="etcd to be back")
    still_works(nodes, node_of(server.endpoint, run_id, "3:4", **conf), 4)
    assert all(each.sizes == [3, 4] for each in nodes)
    assert ids(nodes[0].world)[:3] == order


def test_a_node_without_etcd_for_too_long_gives_up_where_that_is_asked_for(
    etcd_server: MakeServer, node_of: MakeNode, run_id: str
) -> None:
    server = etcd_server()
    patient = node_of(server.endpoint, run_id, "2:2", read_timeout=1, close_timeout=1).follow()
    hasty = node_of(
        server.endpoint, run_id, "2:2", read_timeout=1, close_timeout=1, failsafe_timeout=4
    ).follow()
    world_of([patient, hasty], 2)
    server.kill()
    status = hasty.until_status(lambda s: s.standing is Standing.LOST, what="the end of its patience")
    assert "failsafe_timeout" in status.reason
    assert patient.handler.status().standing is Standing.CURRENT


@pytest.mark.parametrize("ahead", [0, 4, 8])
def test_a_wiped_etcd_costs_at_most_one_round(
    etcd_server: MakeServer, node_of: MakeNode, run_id: str, ahead: int
) -> None:
    """Also where its new revisions are those that the nodes know, or later ones."""
    server = etcd_server()
    conf = {"ttl": 2, "read_timeout": 2, "rejoin_grace": 10}
    nodes = [node_of(server.endpoint, run_id, "3:4", **conf).follow() for _ in range(3)]
    order = world_of(nodes, 3)
    number = nodes[0].world.round
    server.kill()
    server.wipe()
    with out_of_sight(server) as client:
        for _ in range(ahead):
            client.put(b"other", b"")
    server.start().wait_ready()
    with Client([server.endpoint]) as client:
        wait_until(
            lambda: len(records(client, run_id, "nodes/")) == 3 and "round" in records(client, run_id),
            seconds=40,
            what="the nodes to be registered again",
        )
    still_works(nodes, node_of(server.endpoint, run_id, "3:4", **conf), 4)
    for each in nodes:
        assert each.world.round > number, "a round number is never used again"
        assert each.sizes in ([3, 4], [3, 3, 4])
    assert ids(nodes[0].world)[:3] == order


def test_a_node_that_slept_through_a_wipe_comes_back(
    etcd_server: MakeServer, node_of: MakeNode, process_of: MakeProcess, run_id: str
) -> None:
    """The new history has grown past all that it knew, and holds an older record of the same round."""
    server = etcd_server()
    conf = {"ttl": 2, "read_timeout": 2, "rejoin_grace": 600}
    sleeper = process_of(server.endpoint, run_id, "3:4", **conf)
    nodes = [node_of(server.endpoint, run_id, "3:4", **conf).follow() for _ in range(2)]
    world_of(nodes, 3)
    sleeper_id = str(sleeper.until_world(3)["id"])
    sleeper.pause()
    server.kill()
    server.wipe()
    server.start().wait_ready()
    with Client([server.endpoint]) as client:
        wait_until(
            lambda: len(records(client, run_id, "nodes/")) == 2 and "round" in records(client, run_id),
            seconds=40,
            what="the nodes that are awake to be registered again",
        )
        for _ in range(50):
            client.put(b"other", b"")
        sleeper.resume()
        wait_until(lambda: f"nodes/{sleeper_id}" in records(client, run_id), seconds=40, what="the sleeper")
    assert undisturbed(nodes)
    still_works(nodes, node_of(server.endpoint, run_id, "3:4", **conf), 4)
    sleeper.until_world(4)


def test_compaction_while_nodes_come_and_go(etcd_server: MakeServer, node_of: MakeNode, run_id: str) -> None:
    server = etcd_server()
    over = threading.Event()

    def compact() -> None:
        with Client([server.endpoint]) as client:
            while not over.wait(0.02):
                client.compact(client.get_prefix(b"/elastic/").revision)

    compacting = threading.Thread(target=compact, name="test-compact")
    compacting.start()
    try:
        stays = node_of(server.endpoint, run_id, "1:2", last_call_timeout=0, ttl=20).follow()
        stays.until_world(1)
        for count in range(1, 5):
            comes = node_of(server.endpoint, run_id, "1:2", ttl=20).follow()
            comes.until_world(2)
            stays.until_world(2, count=2 * count)
            comes.close()
            stays.until_world(1, count=2 * count + 1)
    finally:
        over.set()
        compacting.join()
    assert stays.sizes == [1, 2, 1, 2, 1, 2, 1, 2, 1]


def test_watches_that_lost_their_history_begin_anew(
    etcd_server: MakeServer, node_of: MakeNode, run_id: str
) -> None:
    server = etcd_server()
    conf = {"ttl": 20, "read_timeout": 2}
    nodes = [node_of(server.endpoint, run_id, "2:3", **conf).follow() for _ in range(2)]
    world_of(nodes, 2)
    server.stop()
    with out_of_sight(server) as client:
        for _ in range(20):
            client.put(b"other", b"")
        client.compact(client.get_prefix(b"other").revision)
    server.start().wait_ready()
    still_works(nodes, node_of(server.endpoint, run_id, "2:3", **conf), 3)
    assert all(each.sizes == [2, 3] for each in nodes)


def test_an_end_that_nobody_saw_happen_is_found(
    etcd_server: MakeServer, node_of: MakeNode, run_id: str
) -> None:
    server = etcd_server()
    nodes = [node_of(server.endpoint, run_id, "2:2", ttl=20, read_timeout=2).follow() for _ in range(2)]
    world_of(nodes, 2)
    server.stop()
    terminal = Terminal(
        outcome=Outcome.CLOSED, reason="by hand", exit_code=0, incarnation=1, round=1, node_id="x"
    )
    with out_of_sight(server) as client:
        client.put(f"/elastic/{run_id}/closed".encode(), encode(terminal, written_at=""))
        client.put(b"other", b"")
        client.compact(client.get_prefix(b"other").revision)
    server.start().wait_ready()
    for each in nodes:
        each.until_over()
        assert each.ended is not None
        assert (each.ended.standing, each.ended.reason) == (Standing.CLOSED, "by hand")


def test_an_operator_can_evict_a_node(node: MakeNode, client: Client, run_id: str) -> None:
    """Deleting the record of a node whose lease lives is not an accident: it has to go."""
    nodes = [node("1:2", last_call_timeout=5).follow() for _ in range(2)]
    world_of(nodes, 2)
    leader = records(client, run_id)["leader"]["nodeId"]
    victim = next(each for each in nodes if each.id != leader)
    stays = next(each for each in nodes if each.id == leader)
    client.delete(f"/elastic/{run_id}/nodes/{victim.id}".encode())
    victim.until_over()
    assert victim.ended is not None
    assert victim.ended.standing is Standing.EVICTED
    stays.until_world(1)


def test_an_evicted_leader_leads_no_more(node: MakeNode, client: Client, run_id: str) -> None:
    """Also before its agent has stopped its workers and shut it down."""
    nodes = [node("1:2", last_call_timeout=5, ttl=3600).follow() for _ in range(2)]
    world_of(nodes, 2)
    leader = records(client, run_id)["leader"]["nodeId"]
    victim = next(each for each in nodes if each.id == leader)
    stays = next(each for each in nodes if each.id != leader)
    client.delete(f"/elastic/{run_id}/nodes/{victim.id}".encode())
    victim.until_over()
    stays.until_world(1)
    assert records(client, run_id)["leader"]["nodeId"] == stays.id
