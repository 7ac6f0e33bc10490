"""Who is in the world, where the rendezvous does not say: agents tell each other over a real store."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta

import pytest

from elastic.agent.server.exchange import with_participants
from elastic.etcd import Client
from elastic.rendezvous import Member, RendezvousInfo, RendezvousStoreInfo
from elastic.store import StoreTimeoutError
from elastic.store.etcd import EtcdStore

LONG = timedelta(seconds=40)


def member(rank: int) -> Member:
    return Member(
        node_id=f"n{rank}", name=f"n{rank}", address="a", hostname="h", local_world_size=rank + 1, role="r"
    )


def info(store: EtcdStore, rank: int, size: int, **more: object) -> RendezvousInfo:
    return RendezvousInfo(store, rank, size, RendezvousStoreInfo("a", 1), **more)  # type: ignore[arg-type]


def test_every_node_learns_of_every_other(client: Client, space: bytes) -> None:
    store = EtcdStore(client, space.decode(), timeout=LONG)
    with ThreadPoolExecutor(4) as pool:
        # The last first: nobody can be done before all have told.
        found = list(
            pool.map(lambda rank: with_participants(info(store, rank, 4), member(rank)), [3, 2, 1, 0])
        )
    for rank, each in zip([3, 2, 1, 0], found, strict=True):
        assert each.participants == tuple(member(n) for n in range(4))
        assert (each.rank, each.world_size) == (rank, 4)


def test_a_rendezvous_that_says_is_believed(client: Client, space: bytes) -> None:
    store = EtcdStore(client, space.decode(), timeout=LONG)
    told = info(store, 0, 1, participants=(member(5),))
    assert with_participants(told, member(0)) is told
    assert store.num_keys() == 0


def test_a_node_that_never_tells_ends_the_wait(client: Client, space: bytes) -> None:
    store = EtcdStore(client, space.decode(), timeout=timedelta(seconds=0.3))
    with pytest.raises(StoreTimeoutError, match="participants/1"):
        with_participants(info(store, 0, 2), member(0))


def test_what_is_told_is_plain_json(client: Client, space: bytes) -> None:
    store = EtcdStore(client, space.decode(), timeout=LONG)
    with_participants(info(store, 0, 1), member(0))
    assert json.loads(store.get("elastic/participants/0")) == asdict(member(0))
