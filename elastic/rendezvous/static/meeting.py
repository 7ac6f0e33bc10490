"""The store in which the nodes of a static rendezvous meet: node rank 0 runs it, the others find it.

Where workers are to use the very port at which nodes meet, the store lies at a free port instead. At the
meeting port there is then, only while a world is being formed, a door: a store that says where the other is.

Adapter over :mod:`elastic.rendezvous.backends.hosting`; it knows nothing of rounds and membership.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from elastic.rendezvous.backends.hosting import Access, OpenStore, is_own, open_tcp, resolved
from elastic.rendezvous.errors import (
    RendezvousConnectionError,
    RendezvousExhaustedError,
    RendezvousGracefulExitError,
    RendezvousStateError,
)
from elastic.store import Store, StoreError, TCPStore, TCPStoreServer
from elastic.store.handshake import Unproven
from elastic.utils.endpoints import Endpoint
from elastic.utils.network import address_towards, knows_itself_by_loopback

log = logging.getLogger("elastic.rendezvous")

_JOB = "elastic.static.job"
_CAME = "elastic.static.came/{}".format
_TRY_SECONDS = 2.0  # one attempt to connect; how soon a node that waits hears that it is to leave
_PAUSE = 0.2
_DOOR_SECONDS = 1.0  # for clients of the door that have read what it says, and are about to go


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all nodes must agree on. `port` is where the nodes' store is, if not where they met (0)."""

    run_id: str
    world_size: int
    port: int = 0


class Meeting:
    """One node's way to the nodes' store.

    `moves` says that the meeting port is for the workers. `leaving`, once set, ends every wait. Seconds:
    `patience` is how long to wait for node rank 0, `resolving` how long for its name to be known.
    """

    def __init__(
        self,
        place: Endpoint,
        job: Job,
        *,
        rank: int,
        moves: bool,
        access: Access,
        patience: float,
        resolving: float,
        leaving: threading.Event,
        local_addr: str | None = None,
    ) -> None:
        self._place = place
        self._job = job
        self._rank = rank
        self._moves = moves
        self._access = access
        self._patience = patience
        self._resolving = resolving
        self._leaving = leaving
        self._local_addr = local_addr
        self._where = str(place)

    def open(self) -> tuple[OpenStore, str]:
        """The nodes' store, and the address at which other nodes reach this one.

        Raises a RendezvousError, in one sentence, where this node does not get there.
        """
        opened = self._hosted() if self._rank == 0 else self._found()
        try:
            opened.store.set(_CAME(self._rank), f"{socket.gethostname()} {os.getpid()}")
            address = opened.address or address_towards(self._place.host, self._place.port)
        except (StoreError, OSError) as e:
            opened.release(0)
            raise RendezvousConnectionError(str(e)) from e
        place = f"the store of node rank 0, met at {self._where},"
        return replace(opened, place=place), self._local_addr or address

    @contextmanager
    def door(self, store: OpenStore) -> Iterator[None]:
        """On node rank 0, have the others find the store for the length of the block; elsewhere nothing."""
        if self._rank != 0 or not self._moves:
            yield
            return
        try:
            door = TCPStoreServer(
                store.listens_on,
                self._place.port,
                also_on=None if store.address == store.listens_on else store.address,
                secret=self._access.secret or None,
                secret_file=self._access.secret_file,
            )
        except StoreError as e:
            raise self._taken(e) from e
        try:
            with self._inside(door) as inside:
                self._announce(inside, replace(self._job, port=_port_of(store.store)))
            yield
        finally:
            door.close(linger=_DOOR_SECONDS)

    def _inside(self, door: TCPStoreServer) -> TCPStore:
        try:
            return TCPStore(
                door.host,
                door.port,
                timeout=self._access.connect,
                secret=self._access.secret or None,
                secret_file=self._access.secret_file,
            )
        except StoreError as e:
            raise RendezvousConnectionError(str(e)) from e

    def missing(self, store: Store) -> list[int]:
        """The ranks of the nodes that have never come."""
        return [rank for rank in range(self._job.world_size) if not store.has(_CAME(rank))]

    def _resolved(self, endpoint: Endpoint, deadline: float) -> list[str]:
        """As `resolved`, for a node that may be told to leave meanwhile."""

        def pause(seconds: float) -> None:
            if self._leaving.wait(seconds):
                raise RendezvousGracefulExitError("this node leaves the rendezvous")

        pause(0)
        try:
            return resolved(endpoint, deadline, pause=pause)
        except StoreError as e:
            raise RendezvousConnectionError(f"{e}: node rank 0 cannot be found; check --master-addr") from e

    # -- node rank 0 ------------------------------------------------------------------------------

    def _hosted(self) -> OpenStore:
        addresses = self._resolved(self._place, time.monotonic() + self._resolving)
        if not self._local_addr and not is_own(addresses[0]):
            raise RendezvousConnectionError(
                f"this is node rank 0, and {self._place.host} ({addresses[0]}) is not of this machine: "
                "check --node-rank and --master-addr, or give --local-addr what that address stands for here"
            )
        host = listening_host(self._place.host, addresses[0], self._local_addr)
        endpoint = replace(self._place, host=host, port=0 if self._moves else self._place.port)
        try:
            opened = open_tcp(endpoint, self._access, is_host=True, local_addr=self._local_addr)
        except StoreError as e:
            raise self._taken(e) from e
        self._announce(opened.store, self._job)
        return opened

    def _taken(self, error: StoreError) -> RendezvousConnectionError:
        return RendezvousConnectionError(
            f"the nodes cannot meet at {self._where}: {error}; end what uses the port, or choose another "
            "--master-port on all nodes"
        )

    def _announce(self, store: Store, job: Job) -> None:
        try:
            store.set(_JOB, json.dumps(asdict(job)))
        except StoreError as e:
            raise RendezvousConnectionError(str(e)) from e

    # -- the others -------------------------------------------------------------------------------

    def _found(self) -> OpenStore:
        deadline = time.monotonic() + self._patience
        opened = self._connected(self._place, deadline)
        job = self._agreed(opened)
        if job.port:
            opened.release(0)
            opened = self._connected(replace(self._place, port=job.port), deadline)
            self._agreed(opened)
        return opened

    def _connected(self, endpoint: Endpoint, deadline: float) -> OpenStore:
        resolved_by = time.monotonic() + self._resolving
        said = False
        while True:
            self._resolved(endpoint, resolved_by)
            left = deadline - time.monotonic()
            access = replace(self._access, connect=max(0.1, min(_TRY_SECONDS, left)))
            try:
                return open_tcp(endpoint, access, is_host=False)
            except StoreError as e:
                if isinstance(_root(e), Unproven):
                    raise RendezvousConnectionError(f"node rank 0 at {endpoint}: {_root(e)}") from e
                if time.monotonic() >= deadline:
                    raise RendezvousExhaustedError(
                        f"no world within {self._patience:g} s (join_timeout): node rank 0 of "
                        f"{self._job.world_size} has not come to {endpoint}, where all meet ({_root(e)})"
                    ) from e
            if not said:
                log.info("waiting for node rank 0 at %s", endpoint)
                said = True
            self._leaving.wait(_PAUSE)

    def _agreed(self, opened: OpenStore) -> Job:
        """The job as node rank 0 has it; an error where this node was started for another."""
        try:
            text = opened.store.get(_JOB)
            job = _decoded(text, self._where)
        except StoreError as e:
            opened.release(0)
            raise RendezvousConnectionError(str(e)) from e
        except RendezvousStateError:
            opened.release(0)
            raise
        theirs, ours = (replace(j, port=0) for j in (job, self._job))
        if theirs != ours:
            opened.release(0)
            raise RendezvousStateError(
                f"node rank 0 at {self._where} runs job {theirs.run_id!r} of {theirs.world_size} nodes, and "
                f"this agent was started for job {ours.run_id!r} of {ours.world_size}; use the same "
                "--rdzv-id and --nnodes on all nodes, or another --master-port"
            )
        return job


def listening_host(host: str, address: str, local_addr: str | None) -> str:
    """Where node rank 0 listens, whose name stands for that address on its own machine.

    Where that is the loopback's, and nobody else gets there, it is `local_addr`, if that is given.
    """
    return local_addr if local_addr and knows_itself_by_loopback(host, address) else host


def _decoded(text: bytes, where: str) -> Job:
    try:
        fields = json.loads(text)
        job = Job(**fields)
    except (ValueError, TypeError, RecursionError) as e:
        raise _unreadable(where) from e
    kinds = (type(job.run_id), type(job.world_size), type(job.port))
    if kinds != (str, int, int) or not 0 <= job.port < 65536:
        raise _unreadable(where)
    return job


def _unreadable(where: str) -> RendezvousStateError:
    return RendezvousStateError(
        f"what node rank 0 at {where} says of the job cannot be read; run the same release of elastic on all "
        "nodes"
    )


def _port_of(store: Store) -> int:
    port = getattr(store, "port", 0)
    if not isinstance(port, int) or not port:
        raise AssertionError("a store over TCP has a port")
    return port


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
