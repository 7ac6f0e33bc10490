"""Nodes that are cut off at random, and a store that loses its data: they make one world in the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pytest
from support.memory_store import Memory, MemoryStore
from support.nodes import Node

from elastic.rendezvous import (
    DynamicRendezvousHandler,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousSettings,
    TpRendezvousBackend,
    get_registry,
)
from elastic.rendezvous.backends.document.membership import DocumentMembership

COUNT = 4
SECONDS = 3.0


class Places:
    """Memories by endpoint, and the stores of their users in the order in which they came."""

    def __init__(self) -> None:
        self.memories: dict[str, Memory] = {}
        self.stores: list[MemoryStore] = []

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        store = MemoryStore(self.memories.setdefault(params.endpoint, Memory()))
        self.stores.append(store)
        settings = RendezvousSettings.from_params(params)
        return DynamicRendezvousHandler(
            settings,
            lambda node_id: DocumentMembership(
                TpRendezvousBackend(store, params.run_id),
                store,
                node_id=node_id,
                settings=settings,
                name="memory",
            ),
            address="127.0.0.1",
        )


PLACES = Places()
CREATE = PLACES.create_handler


@pytest.fixture
def stores() -> Iterator[list[MemoryStore]]:
    """The stores of the nodes of this test."""
    get_registry().register("memory", CREATE)
    PLACES.stores.clear()
    yield PLACES.stores
    for store in PLACES.stores:
        store.cut = False


def numbers(node: Node) -> list[int]:
    return [world.round for world in node.worlds]


def together(nodes: list[Node]) -> bool:
    """Whether all are in one world now."""
    last = [node.worlds[-1] for node in nodes if node.worlds]
    return (
        len(last) == len({world.rank for world in last}) == COUNT
        and len({(world.round, world.participants, world.bootstrap_store_info) for world in last}) == 1
        and all(node.handler.status().connected for node in nodes)
    )


def settle(nodes: list[Node]) -> None:
    deadline = time.monotonic() + 30
    while not together(nodes):
        assert time.monotonic() < deadline, [(n.id, numbers(n), n.error, n.statuses[-1:]) for n in nodes]
        time.sleep(0.05)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))])
def test_nodes_that_are_cut_off_at_random_make_one_world_at_a_time(
    node: Callable[..., Node], stores: list[MemoryStore], seed: int
) -> None:
    dice = random.Random(seed)
    nodes = [node("2:4", backend="memory", endpoint=f"seed-{seed}").follow() for _ in range(COUNT)]
    settle(nodes)
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        dice.choice(stores).cut = dice.random() < 0.6
        time.sleep(dice.uniform(0.05, 0.8))
    for store in stores:
        store.cut = False
    settle(nodes)
    worlds: dict[int, set[object]] = {}
    for each in nodes:
        assert numbers(each) == sorted(set(numbers(each))), "round numbers only grow"
        for world in each.worlds:
            worlds.setdefault(world.round, set()).add((world.participants, world.bootstrap_store_info))
    assert {number for number, seen in worlds.items() if len(seen) > 1} == set(), "one world a round"


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))])
def test_a_store_that_loses_its_data_again_and_again_ends_no_job(
    node: Callable[..., Node], stores: list[MemoryStore], seed: int
) -> None:
    dice = random.Random(seed)
    endpoint = f"wiped-{seed}"
    nodes = [node("2:4", backend="memory", endpoint=endpoint).follow() for _ in range(COUNT)]
    settle(nodes)
    for _ in range(4):
        PLACES.memories[endpoint].wipe()
        time.sleep(dice.uniform(0.0, 0.6))
        if dice.random() < 0.5:
            dice.choice(stores).cut = True
        time.sleep(dice.uniform(0.0, 0.6))
        for store in stores:
            store.cut = False
    settle(nodes)
    for each in nodes:
        assert each.error is None
        assert numbers(each) == sorted(set(numbers(each))), "round numbers only grow"
