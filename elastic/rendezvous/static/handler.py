"""The static rendezvous: a fixed number of nodes, each with a rank of its own, that meet at node rank 0.

`StaticTCPRendezvous` finds the way to the nodes' store (:mod:`.meeting`); in it the nodes agree by the same
protocol as those of any other backend. What is static is who belongs to the job: every world has all nodes,
in the order of their given ranks, and the workers' master is node rank 0. A node that fails has all start
anew. One that is lost is waited for, for as long as a world may take to form, as somebody may start it again;
node rank 0, which runs the store, cannot be: without it the job ends.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from elastic.rendezvous.api import RendezvousHandler, RendezvousInfo, RendezvousStatus, RendezvousStoreInfo
from elastic.rendezvous.backends.document.membership import DocumentMembership
from elastic.rendezvous.backends.document.state import TpRendezvousBackend
from elastic.rendezvous.backends.hosting import Access, OpenStore, lingering
from elastic.rendezvous.core.changes import Observer
from elastic.rendezvous.core.records import Failure
from elastic.rendezvous.dynamic import DynamicRendezvousHandler
from elastic.rendezvous.errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousExhaustedError,
    RendezvousGracefulExitError,
)
from elastic.rendezvous.settings import RendezvousSettings
from elastic.store import StoreError
from elastic.store.handshake import secret_of
from elastic.utils.endpoints import Endpoint

from .hosted import HostedRendezvousHandler
from .master_port import MasterPort
from .meeting import Job, Meeting
from .ranks import in_order, node_name

NAME = "static"
LONGEST_SILENCE = timedelta(seconds=60)
"""How long node rank 0 may be silent by default before another node gives the job up."""


class StaticTCPRendezvous(RendezvousHandler):
    """One node's access to a rendezvous of fixed membership, at node rank 0's address.

    `rank` is this node's, of `world_size`; `timeout` (a timedelta, or seconds) is how long a world may take
    to form. Node rank 0 must have `master_addr` as an address of its own, or `local_addr` must be what that
    name stands for. The workers of rank 0 get `master_port` itself, where the nodes then meet only while no
    workers run. With a `workers_port` they get that one instead (0: a free one in each round), and the
    nodes' store stays at `master_port`. A world of one node may give 0 for `master_port` then.

    `settings` are the other settings of the rendezvous; of `secret` and `secret_file`, which keep strangers
    out of the store, one may be given. Nothing is opened before the first `next_rendezvous`. After use, call
    `shutdown`; that of node rank 0 ends the job of the others, as they cannot go on without it.

    Raises ValueError, in one sentence, for what cannot be meant.
    """

    def __init__(
        self,
        master_addr: str,
        master_port: int,
        rank: int,
        world_size: int,
        run_id: str,
        timeout: timedelta | float = 600.0,
        *,
        workers_port: int | None = None,
        local_addr: str | None = None,
        settings: RendezvousSettings | None = None,
        secret: str = "",
        secret_file: Path | None = None,
    ) -> None:
        join = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
        settings = settings or RendezvousSettings(
            run_id=run_id, min_nodes=world_size, max_nodes=world_size, failsafe_timeout=LONGEST_SILENCE
        )
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside a world of {world_size} nodes, whose ranks begin at 0")
        least = 0 if world_size == 1 and workers_port is not None else 1
        if not least <= master_port < 65536:
            raise ValueError(f"master_port {master_port} is no port: give one from {least} to 65535")
        if workers_port is not None and not 0 <= workers_port < 65536:
            raise ValueError(
                f"workers_port {workers_port} is no port: give one up to 65535, 0 for a free one"
            )
        secret_of(secret or None, secret_file)  # said now, not when the nodes meet
        self._settings = replace(
            settings,
            run_id=run_id,
            min_nodes=world_size,
            max_nodes=world_size,
            timeout=replace(settings.timeout, join=join),
            node_name=node_name(rank, socket.gethostname()),
        )
        self._place = Endpoint("etcd", master_addr, master_port)
        self._rank = rank
        self._world_size = world_size
        self._leaving = threading.Event()
        self._meeting = Meeting(
            self._place,
            Job(run_id=run_id, world_size=world_size),
            rank=rank,
            moves=workers_port is None,
            access=Access(
                connect=self._settings.connect_timeout.total_seconds(),
                call=self._settings.call_seconds,
                secret=secret,
                secret_file=secret_file,
            ),
            patience=join.total_seconds(),
            resolving=self._settings.connect_timeout.total_seconds(),
            leaving=self._leaving,
            local_addr=local_addr,
        )
        self._opening = threading.Lock()
        self._lock = threading.Lock()
        self._opened: OpenStore | None = None
        self._nodes: DynamicRendezvousHandler | None = None
        self._role, self._local_world_size = "default_role", 1
        self._labels: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []
        self._observers: list[Observer] = []
        self._port = MasterPort(master_addr, master_port if workers_port is None else workers_port)
        self._absent: list[int] = []

    # -- the common interface ---------------------------------------------------------------------

    def get_backend(self) -> str:
        return NAME

    def get_run_id(self) -> str:
        return self._settings.run_id

    @property
    def node_id(self) -> str:
        """The id of this node; its beginning, until the nodes have met."""
        return self._settings.node_name if self._nodes is None else self._nodes.node_id

    @property
    def shares_failures(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Block until all nodes are in a new world; at most the timeout, and as long again to meet at first.

        Raises RendezvousExhaustedError, which names the ranks that never came, where nodes are missing,
        RendezvousConnectionError where node rank 0 or its port cannot be used, RendezvousStateError where
        the nodes were started for different jobs or with one rank twice, and else as
        `DynamicRendezvousHandler` does.
        """
        nodes, opened = self._met()
        self._port.release()
        try:
            return self._next_world(nodes, opened)
        except RendezvousConnectionError as e:
            if self._rank == 0:
                nodes.leave(str(e))  # so that the others hear why
            raise

    def is_closed(self) -> bool:
        return self._nodes is not None and self._nodes.is_closed()

    def set_closed(self) -> None:
        self._met()[0].set_closed()

    def num_nodes_waiting(self) -> int:
        return 0 if self._nodes is None else self._nodes.num_nodes_waiting()

    def shutdown(self) -> bool:
        self.leave("shut down")
        self._port.release()
        with self._lock:
            nodes = self._nodes
        return True if nodes is None else nodes.shutdown()

    # -- for event-driven agents ------------------------------------------------------------------

    def announce(self, *, role: str, local_world_size: int, labels: Mapping[str, str] | None = None) -> None:
        self._role, self._local_world_size = role, local_world_size
        self._labels = dict(labels or {})

    def observe(self, observer: Observer) -> None:
        with self._lock:
            self._observers.append(observer)
            if self._nodes is not None:
                self._nodes.observe(observer)

    def subscribe(self, listener: Callable[[], None]) -> bool:
        with self._lock:
            self._listeners.append(listener)
            if self._nodes is not None:
                self._nodes.subscribe(listener)
        return True

    def status(self) -> RendezvousStatus:
        return RendezvousStatus() if self._nodes is None else self._nodes.status()

    def workers_started(self) -> None:
        self._port.release()
        if self._nodes is not None:
            self._nodes.workers_started()

    def regroup(self, cause: str, failure: Failure | None = None) -> None:
        if self._nodes is not None:
            self._nodes.regroup(cause, failure)

    def drain(self, cause: str) -> None:
        if self._nodes is not None:
            self._nodes.drain(cause)

    def leave(self, cause: str) -> None:
        self._leaving.set()
        with self._lock:
            nodes = self._nodes
        if nodes is not None:
            nodes.leave(cause)

    def report_success(self) -> bool:
        return self._nodes is not None and self._nodes.report_success()

    # -- inside -----------------------------------------------------------------------------------

    def _met(self) -> tuple[DynamicRendezvousHandler, OpenStore]:
        """The nodes' rendezvous and the store it is in, found or made by the first call."""
        with self._opening:
            if self._nodes is None or self._opened is None:
                opened, address = self._meeting.open()
                with self._lock:
                    self._opened = opened
                    self._nodes = self._rendezvous(opened, address)
                    for listener in self._listeners:
                        self._nodes.subscribe(listener)
                    for observer in self._observers:
                        self._nodes.observe(observer)
        if self._leaving.is_set():
            self._nodes.shutdown()
            raise RendezvousGracefulExitError("this rendezvous handler has been shut down")
        return self._nodes, self._opened

    def _next_world(self, nodes: DynamicRendezvousHandler, opened: OpenStore) -> RendezvousInfo:
        with self._meeting.door(opened):
            try:
                info = nodes.next_rendezvous()
            except RendezvousClosedError as e:
                if self._leaving.is_set():  # it was this node that ended the job
                    raise RendezvousGracefulExitError("this node leaves the rendezvous") from e
                raise
            except RendezvousExhaustedError as e:
                absent = self._who_never_came(opened)
                if not absent:
                    raise
                ranks = ", ".join(map(str, absent))
                raise RendezvousExhaustedError(f"{e}; node ranks that never came: {ranks}") from e
        info.store.set_timeout(self._settings.timeout.join)
        port = self._port.offer(info.store, opened.address) if self._rank == 0 else self._port.ask(info.store)
        return replace(
            info,
            rank=self._rank,
            participants=in_order(info.participants),
            bootstrap_store_info=RendezvousStoreInfo(self._place.host, port),
        )

    def _rendezvous(self, opened: OpenStore, address: str) -> DynamicRendezvousHandler:
        backend = TpRendezvousBackend(opened.store, self._settings.run_id)
        nodes = HostedRendezvousHandler(
            self._settings,
            lambda node_id: DocumentMembership(
                backend,
                opened.store,
                node_id=node_id,
                settings=self._settings,
                name=NAME,
                place=opened.place,
                release=self._release_store,
            ),
            address=address,
            hosts=self._rank == 0 and self._world_size > 1,
        )
        nodes.announce(role=self._role, local_world_size=self._local_world_size, labels=self._labels)
        return nodes

    def _release_store(self, ended: bool) -> None:
        opened = self._opened
        if opened is None:
            raise AssertionError("what is released has been opened")
        self._absent = self._who_never_came(opened)
        close = self._settings.timeout.close.total_seconds()
        opened.release(lingering(close, ended=ended))

    def _who_never_came(self, opened: OpenStore) -> list[int]:
        """The ranks of which the store knows nothing; once it is freed, what it said then."""
        try:
            return self._meeting.missing(opened.store)
        except StoreError:
            return self._absent
