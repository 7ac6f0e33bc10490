"""The place where the records of a simulated world are: what the world does with it, whatever kind it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from elastic.rendezvous.core.actions import Commit
from support.fake_etcd import FakeEtcd
from support.simulated_network import Access, Clock, Network

LEASE = 10.0
"""Seconds for which a lease lasts."""


class Place(ABC):
    """`records` says which records are there, and `name` is what the trace calls it."""

    name: str
    settling: float
    """Seconds after the last fault in which a world settles."""

    def __init__(self, records: FakeEtcd, network: Network) -> None:
        self.records = records
        self.network = network

    @abstractmethod
    def access(self, node_id: str, *, clock: Clock, checks: Callable[[Commit], None]) -> Access:
        """A node's way to it; `checks` is shown each commit of the node."""

    @abstractmethod
    def revoke(self, lease: object) -> None:
        """Somebody ends a lease that lives."""

    @abstractmethod
    def delete(self, key: str, why: str) -> None:
        """An operator deletes one key."""

    @abstractmethod
    def wipe(self) -> None:
        """All data is lost."""

    @abstractmethod
    def check_settled(self, held: Collection[object]) -> None:
        """Nothing has happened for long, and these are the leases of all who live: so it stays."""

    @abstractmethod
    def elect(self) -> None:
        """It is back, with a new leader of its own where it has such."""

    @abstractmethod
    def expire(self) -> None:
        """Time has gone on: whatever ends by itself does."""
