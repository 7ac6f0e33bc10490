"""One of three etcd members is always missing, another one each round: joins are in time, no node is lost."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
from support.etcd import EtcdCluster
from support.nodes import Node

FAIR_SECONDS = 5.0
"""What a join may take while a member is missing; the slowest has three times that, for busy machines."""


@pytest.mark.parametrize(
    ("fault", "repair"), [("kill", "start"), ("pause", "resume")], ids=["killed", "stopped"]
)
@pytest.mark.parametrize("rounds", [6, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_a_missing_member_delays_no_join_and_costs_no_node(
    etcd_cluster: EtcdCluster,
    node_of: Callable[..., Node],
    run_id: str,
    rounds: int,
    fault: str,
    repair: str,
) -> None:
    endpoints = ",".join(etcd_cluster.endpoints)
    conf = {"ttl": 10, "settle_timeout": 0, "last_call_timeout": 0}

    def arrive() -> Node:
        return node_of(endpoints, run_id, "2:3", **conf).follow()

    nodes = [arrive(), arrive()]
    stays = nodes[:2]
    for each in stays:
        each.until_world(2)
    for number in range(rounds):
        victim = etcd_cluster.members[number % 3]
        getattr(victim, fault)()
        # A third node comes in the even rounds and goes in the odd ones: each round has a new world.
        coming = number % 2 == 0
        if coming:
            nodes.append(arrive())
            nodes[-1].until_world(3)
        else:
            nodes[-1].close()
        for each in stays:
            each.until_world(3 if coming else 2, count=number + 2)
        # The next one goes as soon as this one is back: it and the third are the majority then.
        getattr(victim, repair)()
        victim.wait_ready()
    for each in stays:
        assert each.sizes == [2, *[3, 2] * (rounds // 2)], "a world for each coming and going, and no other"
        assert each.error is None
    seconds = sorted(second for each in nodes for second in each.join_seconds)
    median, slowest = statistics.median(seconds), seconds[-1]
    print(f"{len(seconds)} joins, a member gone by {fault}: median {median:.2f} s, slowest {slowest:.2f} s")
    assert median < FAIR_SECONDS
    assert slowest < 3 * FAIR_SECONDS
