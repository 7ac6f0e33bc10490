"""The port at which the workers of a world meet, for a rendezvous that does not carry it in its records.

Adapter: one bound socket, and one key of a store. The node whose workers listen keeps the port free of others
until they do; it knows nothing of who that node is.
"""

from __future__ import annotations

import socket
import threading
from datetime import timedelta

from elastic.rendezvous.api import RendezvousStoreInfo
from elastic.rendezvous.errors import RendezvousConnectionError
from elastic.store import Store, StoreError
from elastic.utils.network import bound

_SECONDS = 30.0  # in which a node that is in the same world must say where its workers are


class MasterPort:
    """A port of this machine, held from `offer` to `release`; or another node's, by `ask`.

    `chosen` is the port that the user wants; 0: any free one, another in each round.
    """

    def __init__(self, host: str, chosen: int) -> None:
        self._host = host
        self._chosen = chosen
        self._lock = threading.Lock()
        self._held: socket.socket | None = None

    def offer(self, store: Store, address: str) -> int:
        """Hold the port at an address of this machine, and tell the others by a store of this round alone."""
        self.release()
        try:
            held = bound(address, self._chosen)
        except OSError as e:
            refusal = (
                f"the workers' port {self._chosen} of {self._host} is taken ({e.strerror}): end what uses "
                "it, or choose another --master-port"
            )
            self._tell(store, refusal)
            raise RendezvousConnectionError(refusal) from e
        with self._lock:
            self._held = held
        port = int(held.getsockname()[1])
        self._tell(store, str(port))
        return port

    def ask(self, store: Store) -> int:
        """The port that another node offers; its words, as an error, where it has none."""
        try:
            told = store.get(RendezvousStoreInfo.MASTER_PORT_KEY, timedelta(seconds=_SECONDS)).decode()
        except (StoreError, ValueError) as e:
            raise RendezvousConnectionError(
                f"nobody says where the workers of {self._host} listen: {e}"
            ) from e
        if not (told.isascii() and told.isdigit()):
            raise RendezvousConnectionError(told)
        return int(told)

    def _tell(self, store: Store, text: str) -> None:
        try:
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, text)
        except StoreError as e:
            raise RendezvousConnectionError(str(e)) from e

    def release(self) -> None:
        """Let the port go, to workers or for good. May be called again, from any thread."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.close()
