"""Every store there is, twice over the same data, for the contract that all of them keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.etcd import EtcdServer

from elastic.etcd import Client
from elastic.store import FileStore, PrefixStore, Store, TCPStore, as_store
from elastic.store.etcd import EtcdStore

TIMEOUT = 40.0


@dataclass
class Place:
    """Where stores of one kind find their data; each call of `open` gives another client of it."""

    request: pytest.FixtureRequest
    owned: ExitStack
    made: list[Any] = field(default_factory=list)

    def etcd(self) -> Store:
        etcd: EtcdServer = self.request.getfixturevalue("etcd")
        space: bytes = self.request.getfixturevalue("space")
        client = self.owned.enter_context(Client([etcd.endpoint]))
        return EtcdStore(client, space.decode(), timeout=TIMEOUT)

    def tcp(self) -> Store:
        port = self.made[0].port if self.made else 0
        store = TCPStore("127.0.0.1", port, is_master=not self.made, timeout=TIMEOUT, linger=0)
        self.made.append(store)
        return self.owned.enter_context(store)

    def file(self) -> Store:
        return self.owned.enter_context(FileStore(self._path() / "store", timeout=TIMEOUT))

    def torch_tcp(self) -> Store:
        import torch.distributed as dist

        port = self.made[0].port if self.made else 0
        self.made.append(dist.TCPStore("127.0.0.1", port, is_master=not self.made, wait_for_workers=False))
        return self._foreign(self.made[-1])

    def torch_file(self) -> Store:
        import torch.distributed as dist

        return self._foreign(dist.FileStore(str(self._path() / "store"), -1))

    def torch_hash(self) -> Store:
        import torch.distributed as dist

        return self._foreign(self._one(dist.HashStore))

    def tensorplay_tcp(self) -> Store:
        import tensorplay.distributed as dist

        port = self.made[0].port if self.made else 0
        self.made.append(dist.TCPStore("127.0.0.1", port, is_master=not self.made))
        self.owned.callback(self.made[-1].stop)
        return self._foreign(self.made[-1])

    def tensorplay_file(self) -> Store:
        import tensorplay.distributed as dist

        return self._foreign(dist.FileStore(str(self._path() / "store")))

    def tensorplay_hash(self) -> Store:
        import tensorplay.distributed as dist

        return self._foreign(self._one(dist.HashStore))

    def _one(self, make: Callable[[], Any]) -> Any:
        if not self.made:
            self.made.append(make())
        return self.made[0]

    def _path(self) -> Path:
        path: Path = self.request.getfixturevalue("tmp_path")
        return path

    @staticmethod
    def _foreign(store: Any) -> Store:
        wrapped = as_store(store)
        wrapped.set_timeout(TIMEOUT)
        return wrapped


def kind(name: str, *marks: pytest.MarkDecorator, prefixed: bool = False) -> Any:
    return pytest.param((name, prefixed), id=f"prefix-{name}" if prefixed else name, marks=marks)


KINDS = [
    kind("etcd"),
    kind("tcp"),
    kind("file"),
    kind("etcd", prefixed=True),
    kind("tcp", prefixed=True),
    kind("file", prefixed=True),
    *(kind(f"torch_{name}", pytest.mark.torch) for name in ("tcp", "file", "hash")),
    *(kind(f"tensorplay_{name}", pytest.mark.tensorplay) for name in ("tcp", "file", "hash")),
]


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[], Store]]:
    """Opens one more client of the same empty data."""
    name, prefixed = request.param
    with ExitStack() as owned:
        open_one: Callable[[], Store] = getattr(Place(request, owned), name)
        yield (lambda: PrefixStore("p", open_one())) if prefixed else open_one


@pytest.fixture
def store(opened: Callable[[], Store]) -> Store:
    return opened()


@pytest.fixture
def other(opened: Callable[[], Store], store: Store) -> Store:
    """The same store, of another client."""
    return opened()


@pytest.fixture
def lists(request: pytest.FixtureRequest) -> bool:
    """Whether the store can list its keys."""
    name, _ = request.node.callspec.params["opened"]
    return not name.startswith("tensorplay")


@pytest.fixture
def counted_from(store: Store) -> int:
    """How many keys the store has of its own."""
    return store.num_keys()
