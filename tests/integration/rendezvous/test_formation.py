"""What it costs to form a world, and to be in one, by etcd's own count."""

from __future__ import annotations

import time
from collections.abc import Callable

from support.crowd import Counts, Crowd, counts
from support.etcd import EtcdServer, wait_until
from support.nodes import Node, records

from elastic.etcd import Client

MakeServer = Callable[..., EtcdServer]

PUTS_PER_NODE = 5  # its record as it joins and as it runs, and its share of round, history and leader


def settled(client: Client, run_id: str, nodes: int) -> None:
    """Until every node has said that it runs: the last write of a formation."""

    def all_active() -> bool:
        found = records(client, run_id, "nodes/").values()
        return [record["want"] for record in found] == ["ACTIVE"] * nodes

    wait_until(all_active, what=f"{nodes} nodes that run")


def formed(server: EtcdServer, run_id: str, nodes: int) -> Counts:
    """The cost of forming a world of so many nodes in four processes, which are gone afterwards."""
    with (
        Client([server.endpoint]) as client,
        Crowd(server.endpoint, run_id, nodes=nodes, processes=4, ttl=20, last_call_timeout=60) as crowd,
    ):
        crowd.wait_ready()
        before = counts(server.url)
        outcomes = crowd.form()
        settled(client, run_id, nodes)
        cost = counts(server.url).since(before)
        assert sorted(each["rank"] for each in outcomes) == list(range(nodes))
        assert {each["size"] for each in outcomes} == {nodes}
        assert len({(each["round"], each["port"]) for each in outcomes}) == 1
    return cost


def test_the_cost_of_a_world_is_a_small_constant_for_each_node(etcd_server: MakeServer) -> None:
    server = etcd_server()
    small, large = formed(server, "small", 16), formed(server, "large", 64)
    for nodes, cost in ((16, small), (64, large)):
        assert 2 * nodes <= cost.puts <= PUTS_PER_NODE * nodes, cost
        assert cost.requests["LeaseGrant"] <= nodes + 1, "one for each node, and the run's"
        assert cost.requests.get("Put", 0) == 0
    # Those of the test itself are a few dozen reads, none of them transactions.
    assert large.requests["Txn"] / 64 <= 1.5 * small.requests["Txn"] / 16, (small, large)
    assert large.puts / 64 <= 1.2 * small.puts / 16, (small, large)


def calm(server: EtcdServer, *, seconds: float) -> bool:
    """Whether nothing is asked for so long, but that leases be kept."""
    before = counts(server.url)
    time.sleep(seconds)
    return set(counts(server.url).since(before).requests) <= {"LeaseKeepAlive"}


def test_an_idle_world_writes_nothing_and_asks_nothing(
    etcd_server: MakeServer, node_of: Callable[..., Node], run_id: str
) -> None:
    """Neither do a node that waits, and one that would wait for ever."""
    server = etcd_server()
    conf = {"ttl": 5, "progress_interval": 600}  # who waits reads once to say for whom, at that time
    nodes = [node_of(server.endpoint, run_id, "3:3", **conf).follow() for _ in range(4)]
    with Client([server.endpoint]) as client:
        wait_until(lambda: _wants(client, run_id) == ["ACTIVE"] * 3 + ["SPARE"], what="three and a spare")
    # A write is to be seen before its request is counted.
    wait_until(lambda: calm(server, seconds=0.5), what="the last request of the formation to be over")
    before = counts(server.url)
    time.sleep(5)
    cost = counts(server.url).since(before)
    assert cost.puts == 0
    assert set(cost.requests) <= {"LeaseKeepAlive"}, cost
    assert cost.requests["LeaseKeepAlive"] >= len(nodes), "the leases are kept all the while"


def _wants(client: Client, run_id: str) -> list[str]:
    return sorted(record["want"] for record in records(client, run_id, "nodes/").values())


def test_a_key_that_cannot_be_read_costs_no_requests(
    etcd_server: MakeServer, node_of: Callable[..., Node], run_id: str
) -> None:
    """The leader would have something to write, and cannot: it waits for news instead of trying."""
    server = etcd_server()
    leader = node_of(server.endpoint, run_id, "1:1", last_call_timeout=0).follow()
    leader.until_world(1)
    with Client([server.endpoint]) as client:
        settled(client, run_id, 1)
        client.put(f"/elastic/{run_id}/round".encode(), b"{}")
        client.put(f"/elastic/{run_id}/leader".encode(), b"{}")
        kv = client.get(f"/elastic/{run_id}/nodes/{leader.id}".encode())
        assert kv is not None
        client.lease_revoke(kv.lease)
    wait_until(lambda: calm(server, seconds=1), what="what is tried at once to be tried")
    before = counts(server.url)
    time.sleep(2)
    cost = counts(server.url).since(before)
    assert cost.puts == 0
    assert set(cost.requests) <= {"LeaseKeepAlive"}, cost
