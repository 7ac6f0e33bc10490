"""The rendezvous interface: what an agent asks of any backend, and what it gets.

The first part of `RendezvousHandler` is the field's common interface; a handler that has only that
works. The second part, from `announce` on, is what makes an agent event-driven; each of its methods
has a default that falls back on the first part.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elastic.store import Store
from elastic.utils.network import ReservedPort

from .core.changes import Change
from .core.member import Standing
from .core.records import Failure, Member, Terminal


class RendezvousParameters:
    """What a rendezvous is asked for.

    `backend` is the name of the backend and `endpoint` where it is found; `run_id` names the job;
    `min_nodes` and `max_nodes` bound its world; `local_addr` is the address that other nodes should
    use for this one (default: the one from which this node reaches the backend). All further keyword
    arguments are settings of the backend. Raises ValueError for an empty backend name or impossible
    bounds.
    """

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError("the rendezvous backend has no name: give one, such as 'etcd'")
        if min_nodes < 1:
            raise ValueError(f"min_nodes is {min_nodes}: it must be at least 1")
        if max_nodes < min_nodes:
            raise ValueError(f"max_nodes is {max_nodes}: it must be at least min_nodes, which is {min_nodes}")
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = run_id
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.local_addr = local_addr
        self.config: dict[str, Any] = kwargs

    def get(self, key: str, default: Any = None) -> Any:
        """The setting of that name."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """The setting as a truth value (1/0, true/false, t/f, yes/no, y/n); ValueError for others."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in ("1", "true", "t", "yes", "y"):
            return True
        if text in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(f"rendezvous setting {key}={value!r} is neither true nor false")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """The setting as a whole number; ValueError for others."""
        value = self.get(key, default)
        if value is None:
            return None
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None or (isinstance(value, float) and number != value):
            raise ValueError(f"rendezvous setting {key}={value!r} is not a whole number")
        return number

    def get_as_seconds(self, key: str, default: float) -> float:
        """The setting as a number of seconds, not negative; ValueError for others."""
        value = self.get(key, default)
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"rendezvous setting {key}={value!r} is not a number of seconds")
        return seconds


@dataclass(frozen=True)
class RendezvousStoreInfo:
    """Where the workers of a world find each other: rank 0 listens on `master_addr`:`master_port`."""

    master_addr: str
    master_port: int

    MASTER_ADDR_KEY = "MASTER_ADDR"
    MASTER_PORT_KEY = "MASTER_PORT"

    @property
    def port(self) -> int:
        """Another name of `master_port`."""
        return self.master_port

    @staticmethod
    def build(
        rank: int, store: Store, local_addr: str | None = None, server_port: int | None = None
    ) -> RendezvousStoreInfo:
        """Agree over a store: rank 0 sets address and port, and every rank reads them.

        `store` must be one of this round alone. `local_addr` defaults to this host's name and
        `server_port` to a free port. Blocks up to the store's timeout. For handlers without a
        membership record of their own; where there is one, it carries the address already.
        """
        info = RendezvousStoreInfo
        if rank == 0:
            address = local_addr or socket.getfqdn()
            if server_port is None:
                port = ReservedPort(address)
                server_port = port.port
                port.release()
            store.set(info.MASTER_ADDR_KEY, address)
            store.set(info.MASTER_PORT_KEY, str(server_port))
        address = store.get(info.MASTER_ADDR_KEY).decode()
        return RendezvousStoreInfo(address, int(store.get(info.MASTER_PORT_KEY)))


@dataclass(frozen=True)
class RendezvousInfo:
    """The outcome of a rendezvous, for one node.

    `participants` are the members of the world in rank order (empty from a handler that does not
    know them), `waiting` the number of nodes that wait for the next one, `round` the number of this
    one, and `failures` how many worker failures the job has had so far. `cause` is why it was formed, and
    `revision` that of etcd at which it was (None: not known).
    """

    store: Store
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo
    round: int = 0
    participants: tuple[Member, ...] = ()
    waiting: int = 0
    failures: int = 0
    cause: str = ""
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class RendezvousStatus:
    """What the shared state means, now, for the workers that this node runs.

    `nodes_waiting` nodes want to be let in, `nodes_leaving` members will leave when their workers have saved,
    and `spares` nodes wait for a place to become free, for all that this node knows. `find_stragglers` is
    what an operator wants of the agents (None: nothing).
    `connected` is False while the backend is away: nothing is decided then, and workers run on.
    """

    standing: Standing = Standing.CURRENT
    reason: str = ""
    terminal: Terminal | None = None
    nodes_waiting: int = 0
    connected: bool = True
    nodes_leaving: int = 0
    spares: int = 0
    find_stragglers: bool | None = None


class RendezvousHandler(ABC):
    """One node's access to a rendezvous. After use, `shutdown` must be called."""

    @abstractmethod
    def get_backend(self) -> str:
        """The name of the backend."""

    @property
    def node_id(self) -> str:
        """The id of this node in the run; empty from a handler that has none."""
        return ""

    @property
    def shares_failures(self) -> bool:
        """Whether a failure told to `regroup` counts for the whole job, and ends it where it is final."""
        return False

    @property
    def use_agent_store(self) -> bool:
        """Whether workers may use the store that `next_rendezvous` returns as their own bootstrap store."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Block until this node is in a new world.

        This node's workers must be stopped. Raises a `RendezvousError` of the kind that says why
        there is no world for it.
        """

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the job has ended, as far as is known."""

    @abstractmethod
    def set_closed(self) -> None:
        """End the job for all nodes."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """How many nodes wait to be let in; never blocks."""

    @abstractmethod
    def get_run_id(self) -> str:
        """The id of the run."""

    @abstractmethod
    def shutdown(self) -> bool:
        """Leave, without closing the job for the others, and free everything.

        Returns whether the goodbye was heard. A blocked `next_rendezvous` raises
        `RendezvousGracefulExitError`. May be called again.
        """

    # -- for event-driven agents ------------------------------------------------------------------

    def announce(  # noqa: B027
        self, *, role: str, local_world_size: int, labels: Mapping[str, str] | None = None
    ) -> None:
        """Say what this node brings to the world. Call it before the first `next_rendezvous`.

        `labels` are for people and schedulers, and are published with the node.
        """

    def observe(self, observer: Callable[[Change], None]) -> None:  # noqa: B027
        """Have `observer` told of every change of the shared state, from any thread. It must not block."""

    def subscribe(self, listener: Callable[[], None]) -> bool:  # noqa: ARG002
        """Have `listener` called, from any thread, whenever `status` may have changed.

        False from a handler that cannot: its status must be looked at from time to time.
        """
        return False

    def status(self) -> RendezvousStatus:
        """What the shared state means for the running workers; never blocks."""
        standing = Standing.CLOSED if self.is_closed() else Standing.CURRENT
        return RendezvousStatus(standing=standing, nodes_waiting=self.num_nodes_waiting())

    def workers_started(self) -> None:  # noqa: B027
        """The workers of the world from `next_rendezvous` run: their master port need not be kept free."""

    def regroup(self, cause: str, failure: Failure | None = None) -> None:  # noqa: B027
        """Say that this node's workers must start anew, and are being stopped; `next_rendezvous` comes next.

        `failure` is the worker failure that is the reason, if one is. Does not block.
        """

    def drain(self, cause: str) -> None:  # noqa: B027
        """Say that this node will leave when its workers have saved; `leave` comes later. Does not block."""

    def leave(self, cause: str) -> None:  # noqa: B027
        """Say that this node goes, before its workers are stopped; `shutdown` comes last. Does not block."""

    def report_success(self) -> bool:
        """Say that all workers of this node have succeeded.

        True where the handler then closes the job once every node has said so, which `status`
        tells; False where there is nothing to wait for. Does not block.
        """
        return False


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]
