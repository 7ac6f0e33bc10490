"""A handler over a store that the caller brings: of this package, of torch or of tensorplay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from support.places import framework_store

from elastic.rendezvous import (
    DynamicRendezvousHandler,
    P10dRendezvousBackend,
    RendezvousTimeout,
    TpRendezvousBackend,
)
from elastic.store import TCPStore, TCPStoreServer

SHORT = RendezvousTimeout(last_call=timedelta(0), join=timedelta(seconds=40))


@pytest.fixture(
    params=[
        "elastic",
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("tensorplay", marks=pytest.mark.tensorplay),
    ]
)
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    if request.param != "elastic":
        yield framework_store(request.param, request)
        return
    stores: list[TCPStore] = []
    with TCPStoreServer("127.0.0.1") as server:

        def make() -> TCPStore:
            stores.append(TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=5)))
            return stores[-1]

        yield make
        for store in stores:
            store.close()


@pytest.mark.parametrize("kind", [TpRendezvousBackend, P10dRendezvousBackend])
def test_two_nodes_meet_over_a_store_of_the_caller(
    open_store: Callable[[], Any], kind: type[P10dRendezvousBackend]
) -> None:
    stores = [open_store(), open_store()]
    handlers = [
        DynamicRendezvousHandler.from_backend(
            "job", store, kind(store, "job"), 2, 2, "127.0.0.1", SHORT, timedelta(seconds=5), 3
        )
        for store in stores
    ]
    with ThreadPoolExecutor(2) as pool:
        infos = list(pool.map(DynamicRendezvousHandler.next_rendezvous, handlers))
    assert sorted(info.rank for info in infos) == [0, 1]
    assert len({(info.round, info.participants) for info in infos}) == 1
    infos[0].store.set("key", "value")
    assert infos[1].store.get("key") == b"value"
    assert {handler.get_backend() for handler in handlers} == {kind(stores[0], "job").name}
    assert all(handler.shutdown() for handler in handlers)
    stores[0].set("key", "it is the caller's, and open")


def test_what_cannot_be_is_refused_in_words() -> None:
    with TCPStoreServer("127.0.0.1") as server, TCPStore("127.0.0.1", server.port) as store:
        backend = P10dRendezvousBackend(store, "job")
        make = DynamicRendezvousHandler.from_backend
        with pytest.raises(TypeError, match="no store"):
            make("job", "store", backend, 1, 2)
        with pytest.raises(ValueError, match="min_nodes is 3 and max_nodes 2"):
            make("job", store, backend, 3, 2)
        with pytest.raises(ValueError, match="run id"):
            make("a b", store, backend, 1, 2)
        with pytest.raises(ValueError, match="two heartbeats"):
            make("job", store, backend, 1, 2, keep_alive_interval=5, keep_alive_max_attempt=1)
