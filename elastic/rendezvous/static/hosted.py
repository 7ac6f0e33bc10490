"""The rendezvous of nodes that keep its records in a store which one of them runs for all of them."""

from __future__ import annotations

from collections.abc import Callable

from elastic.rendezvous.backends.api import MembershipBackend
from elastic.rendezvous.dynamic import DynamicRendezvousHandler
from elastic.rendezvous.settings import RendezvousSettings


class HostedRendezvousHandler(DynamicRendezvousHandler):
    """As its base; but the node that `hosts` the store ends the job when it leaves, with its name and why.

    Without that the others would wait for a store that is gone, and could only guess.
    """

    def __init__(
        self,
        settings: RendezvousSettings,
        backend: Callable[[str], MembershipBackend],
        *,
        address: str,
        hosts: bool,
    ) -> None:
        super().__init__(settings, backend, address=address)
        self._hosts = hosts

    def leave(self, cause: str) -> None:
        if self._hosts and self._shell is not None:
            self._hosts = False  # said once: what comes later is no reason
            name = self._settings.node_name
            self._shell.post(lambda protocol: protocol.close(f"{name}, which ran the store, left: {cause}"))
        super().leave(cause)
