"""One call of `next_rendezvous`, in a thread of its own so that the agent's loop can go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from elastic.rendezvous import RendezvousInfo


class Join:
    """`over` once there is `info` or `error`; then `ring` is called. The owner joins `thread`."""

    def __init__(self, call: Callable[[], RendezvousInfo], ring: Callable[[], None]) -> None:
        self.info: RendezvousInfo | None = None
        self.error: BaseException | None = None
        self.over = False
        self._call = call
        self._ring = ring
        self.thread = threading.Thread(target=self._run, name="elastic-join", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.info = self._call()
        except BaseException as e:
            self.error = e
        self.over = True
        self._ring()
