"""A run of the test's own, at every kind of place where its records may be kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.memory_store import Memory, MemoryStore
from support.places import EtcdSite, Site, StoreSite, framework_store

from elastic.store import FileStore, TCPStore, TCPStoreServer

PLACES = [
    "etcd",
    "memory",
    "tcp",
    "file",
    pytest.param("torch", marks=pytest.mark.torch),
    pytest.param("tensorplay", marks=pytest.mark.tensorplay),
]


@pytest.fixture(params=PLACES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A run of the test's own."""
    made: Site
    match request.param:
        case "etcd":
            made = EtcdSite(request.getfixturevalue("etcd"))
        case "memory":
            memory = Memory()
            made = StoreSite(lambda: MemoryStore(memory))
        case "tcp":
            server = request.getfixturevalue("tcp_server")
            made = StoreSite(lambda: TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=5)))
        case "file":
            made = StoreSite(lambda: FileStore(str(tmp_path / "store")))
        case framework:
            made = StoreSite(framework_store(framework, request), lists_keys=framework == "torch")
    yield made
    made.close()


@pytest.fixture
def tcp_server() -> Iterator[TCPStoreServer]:
    with TCPStoreServer("127.0.0.1") as server:
        yield server
