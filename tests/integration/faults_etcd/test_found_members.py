"""A node that was told of one etcd member, and asked to find the others, outlives that one."""

from __future__ import annotations

from collections.abc import Callable

from support.etcd import EtcdCluster
from support.nodes import Node


def test_a_node_that_knows_one_member_outlives_it(
    etcd_cluster: EtcdCluster, node_of: Callable[..., Node], run_id: str
) -> None:
    known, other, _ = etcd_cluster.members
    conf = {"ttl": 10, "settle_timeout": 0, "last_call_timeout": 0}
    stays = node_of(known.endpoint, run_id, "1:2", find_members=1, **conf).follow()
    stays.until_world(1)
    known.kill()
    comes = node_of(other.endpoint, run_id, "1:2", **conf).follow()
    comes.until_world(2)
    stays.until_world(2)
    assert stays.sizes == [1, 2]
