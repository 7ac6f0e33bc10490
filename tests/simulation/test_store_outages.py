"""Faults that strike all nodes at once, over a document in a plain store: they restart no healthy worker.

Each is tried a few times, with clocks and pauses of other lengths; ELASTIC_SEEDS=20000 tries more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from support.fake_store import FakeStore
from support.simulated_document import DRIFT, DocumentStore
from support.simulated_node import SimulatedNode
from support.simulated_place import LEASE
from support.simulator import World, rules_of

from elastic.rendezvous.backends.document.codec import decode

NODES = 3
SEEDS = max(1, int(os.environ.get("ELASTIC_SEEDS", "2000")) // 700)


def formed(seed: int, *, interval: float = LEASE / 3) -> World:
    """A world that has run for a while, whose nodes raise their counters at this interval."""
    dice = random.Random(seed)
    world = World(rules_of(NODES, NODES), over=DocumentStore)
    world.spread = dice.uniform
    assert isinstance(world.place, DocumentStore)
    world.place.beat_every(interval)
    for number in range(NODES):
        rate = dice.uniform(1 - DRIFT, 1 + DRIFT)
        world.start(f"n{number}", offset=dice.uniform(0, 1e6), rate=rate)
        world.pass_time(dice.uniform(0.0, 1.0))
    world.pass_time(LEASE + dice.uniform(0.0, LEASE))
    world.check_settled()
    return world


def store_of(world: World) -> FakeStore:
    assert isinstance(world.place, DocumentStore)
    return world.place.store


def away(world: World, seconds: float) -> None:
    world.go_down()
    world.pass_time(seconds)
    world.come_back()


def asleep(world: World, seconds: float) -> None:
    for node in world.nodes.values():
        node.paused = True
    world.pass_time(seconds)
    for node in world.nodes.values():
        node.paused = False


def one_after_the_other(world: World, seconds: float) -> None:
    """Not all get through again at the same time."""
    for node in world.nodes.values():
        node.cut = True
    world.pass_time(seconds)
    for node in world.nodes.values():
        node.cut = False
        world.pass_time(0.7)


@pytest.mark.parametrize("seconds", [LEASE / 2, LEASE + 0.5, 4 * LEASE])
@pytest.mark.parametrize("fault", [away, asleep, one_after_the_other])
def test_who_could_not_be_heard_by_anybody_is_not_lost(
    fault: Callable[[World, float], None], seconds: float
) -> None:
    for seed in range(SEEDS):
        world = formed(seed)
        before = world.committed
        fault(world, seconds)
        world.pass_time(2 * LEASE)
        assert world.committed == before, seed
        world.check_settled()


def test_an_outage_that_is_shorter_than_a_lease_ends_none_however_rarely_nodes_are_heard_of() -> None:
    for seed in range(12 * SEEDS):
        world = formed(seed, interval=LEASE / 2)
        before = world.committed
        away(world, random.Random(seed).uniform(0.4, 0.9) * LEASE)
        world.pass_time(LEASE)
        assert world.committed == before, seed


@pytest.mark.parametrize("seconds", [0.0, LEASE / 2, 2 * LEASE])
def test_a_store_that_comes_back_empty_costs_no_restart(seconds: float) -> None:
    for seed in range(SEEDS):
        world = formed(seed)
        before = world.committed
        world.go_down()
        world.wipe()
        world.pass_time(seconds)
        world.come_back()
        world.pass_time(2 * LEASE)
        assert world.committed == before, seed
        world.check_settled()


def test_who_is_heard_of_at_the_last_moment_keeps_its_lease() -> None:
    """It writes between the others' finding that it is silent and their writing so."""
    for seed in range(SEEDS):
        world = formed(seed)
        before, store = world.committed, store_of(world)
        victim = world.nodes[f"n{seed % NODES}"]
        lease = victim.lease

        def come_first(state: bytes, victim: SimulatedNode = victim, lease: object = lease) -> None:
            if victim.cut and lease not in decode("the key", state).leases:
                victim.cut = False
                victim.hear()

        store.ahead = come_first
        victim.cut = True
        world.pass_time(2 * LEASE)
        assert not victim.cut, "they found out"
        assert world.committed == before, seed
        world.check_settled()


def test_a_node_that_dies_is_known_to_be_gone_soon_after_its_lease() -> None:
    for seed in range(SEEDS):
        world = formed(seed)
        victim = world.nodes[f"n{seed % NODES}"]
        lease, died = victim.lease, world.now
        victim.crash()
        store = store_of(world)
        store.calm = False
        while store.document is not None and lease in store.document.leases:
            assert world.now < died + 1.5 * LEASE, seed
            world.pass_time(0.5)
