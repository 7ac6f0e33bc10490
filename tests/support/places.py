"""The places where the records of a run may be kept, each as a maker of backends for its nodes."""

from __future__ import annotations

import itertools
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from elastic.etcd import Client
from elastic.rendezvous import RendezvousSettings, TpRendezvousBackend
from elastic.rendezvous.backends.api import MembershipBackend, Reading
from elastic.rendezvous.backends.document.membership import DocumentMembership
from elastic.rendezvous.backends.etcd_membership import EtcdMembership
from elastic.store import Store
from support.etcd import EtcdServer
from support.inbox import Inbox

TTL = 20
"""Seconds: nobody is lost because the test's process stood still for a while."""


class Node:
    """One node's backend, the news that it has been told, and what it read at its start."""

    def __init__(self, node_id: str, backend: MembershipBackend) -> None:
        self.id = node_id
        self.backend = backend
        self.inbox = Inbox()
        self.first: Reading = backend.start(self.inbox)


class Site(ABC):
    """Where one run is kept."""

    def __init__(self) -> None:
        self.lists_keys = True
        self.run_id = f"run-{uuid.uuid4().hex[:8]}"
        self.settings = RendezvousSettings(
            run_id=self.run_id, min_nodes=1, max_nodes=4, ttl=timedelta(seconds=TTL)
        )
        self.nodes: list[Node] = []
        self._ids = itertools.count()

    def set_ttl(self, seconds: float) -> None:
        """For a test of how leases go, before it makes nodes."""
        self.settings = replace(self.settings, ttl=timedelta(seconds=seconds))

    def node(self) -> Node:
        """A node that has started, with a lease."""
        node_id = f"n{next(self._ids)}"
        self.nodes.append(Node(node_id, self.backend(node_id)))
        self.nodes[-1].backend.hold_lease()
        return self.nodes[-1]

    @abstractmethod
    def backend(self, node_id: str) -> MembershipBackend: ...

    @abstractmethod
    def spoil(self, key: str) -> None:
        """Give a key of the run a value that is no record."""

    def close(self) -> None:
        for node in self.nodes:
            node.backend.close()


class EtcdSite(Site):
    def __init__(self, server: EtcdServer) -> None:
        super().__init__()
        self._server = server
        self._prefix = f"/elastic/{self.run_id}/"

    def backend(self, node_id: str) -> MembershipBackend:
        client = Client([self._server.endpoint])
        return EtcdMembership(client, prefix=self._prefix, node_id=node_id, settings=self.settings)

    def spoil(self, key: str) -> None:
        with Client([self._server.endpoint]) as client:
            client.put((self._prefix + key).encode(), b'"spoiled"')


class StoreSite(Site):
    """Over stores that `open_store` makes, one for each node; `lists_keys`: whether they can."""

    def __init__(self, open_store: Callable[[], Any], *, lists_keys: bool = True) -> None:
        super().__init__()
        self.lists_keys = lists_keys
        self._open = open_store
        self.stores: list[Store] = []

    def open(self) -> Any:
        store = self._open()
        if isinstance(store, Store):
            self.stores.append(store)
        return store

    def backend(self, node_id: str) -> MembershipBackend:
        state = TpRendezvousBackend(self.open(), self.run_id)
        return DocumentMembership(state, state.store, node_id=node_id, settings=self.settings)

    def spoil(self, key: str) -> None:
        state = TpRendezvousBackend(self.open(), self.run_id)
        done = False
        while not done:  # the nodes write signs of life meanwhile
            found = state.get_state()
            assert found is not None
            document, token = json.loads(found[0]), found[1]
            document["revision"] += 1
            document["records"][key].update(modified=document["revision"], value="spoiled")
            spoiled = json.dumps(document).encode()
            outcome = state.set_state(spoiled, token)
            assert outcome is not None
            done = outcome == (spoiled, spoiled, True)

    def close(self) -> None:
        for store in self.stores:
            store.close()
        super().close()


def framework_store(name: str, request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Makes stores of a framework, all of one server."""
    distributed = pytest.importorskip(f"{name}.distributed")
    master = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    request.addfinalizer(lambda: master.get)  # it lives as long as the test
    return lambda: distributed.TCPStore("127.0.0.1", master.port, is_master=False)
