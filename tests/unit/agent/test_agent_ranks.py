"""Ranks of workers, from the world record alone: unequal nodes, roles, and always a permutation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastic.agent.server.ranks import WorkerRanks, worker_ranks
from elastic.rendezvous import Member


def world_of(*nodes: tuple[str, int]) -> list[Member]:
    return [
        Member(node_id=f"n{i}", name=f"n{i}", address="a", hostname="h", local_world_size=size, role=role)
        for i, (role, size) in enumerate(nodes)
    ]


def test_unequal_nodes() -> None:
    world = world_of(("w", 3), ("w", 1))
    assert [w.rank for w in worker_ranks(world, 0)] == [0, 1, 2]
    assert worker_ranks(world, 1) == (
        WorkerRanks(local_rank=0, rank=3, world_size=4, role_rank=3, role_world_size=4),
    )


def test_roles_are_counted_each_by_itself() -> None:
    world = world_of(("trainer", 2), ("reader", 1), ("trainer", 1), ("reader", 3))
    ranks = [(w.rank, w.role_rank, w.role_world_size) for n in range(4) for w in worker_ranks(world, n)]
    assert ranks == [
        (0, 0, 3),
        (1, 1, 3),
        (2, 0, 4),
        (3, 2, 3),
        (4, 1, 4),
        (5, 2, 4),
        (6, 3, 4),
    ]


def test_a_node_alone() -> None:
    assert worker_ranks(world_of(("w", 1)), 0) == (
        WorkerRanks(local_rank=0, rank=0, world_size=1, role_rank=0, role_world_size=1),
    )


worlds = st.lists(
    st.tuples(st.sampled_from(["trainer", "reader", "judge"]), st.integers(1, 9)), min_size=1, max_size=12
).map(lambda nodes: world_of(*nodes))


@given(worlds)
def test_ranks_are_a_permutation_in_the_order_of_the_nodes(world: list[Member]) -> None:
    workers = [w for n in range(len(world)) for w in worker_ranks(world, n)]
    total = sum(member.local_world_size for member in world)
    assert [w.rank for w in workers] == list(range(total))
    assert {w.world_size for w in workers} == {total}


@given(worlds)
def test_role_ranks_are_a_permutation_of_each_role(world: list[Member]) -> None:
    for role in {member.role for member in world}:
        workers = [w for n, m in enumerate(world) if m.role == role for w in worker_ranks(world, n)]
        assert [w.role_rank for w in workers] == list(range(len(workers)))
        assert {w.role_world_size for w in workers} == {len(workers)}


@given(worlds)
def test_local_ranks_count_the_workers_of_the_node(world: list[Member]) -> None:
    for n, member in enumerate(world):
        assert [w.local_rank for w in worker_ranks(world, n)] == list(range(member.local_world_size))
