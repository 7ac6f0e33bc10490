"""The thread that carries out one node's protocol, and what other threads have of it.

It runs the turns of :mod:`.loop` until the node has gone. Others post wishes and read, or wait for, the
situation. Nothing is decided here.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable

from .backends.api import MembershipBackend
from .core.changes import Observer
from .core.protocol import Protocol
from .errors import RendezvousError
from .loop import Inbox, Loop, Wish
from .situation import Board, Situation

log = logging.getLogger("elastic.rendezvous")


class Shell:
    """Runs a protocol over a backend. `start`, then `post` wishes and read `situation`; end with `stop`.

    Without `start` there is no thread, and whoever owns the shell calls `turn` when `due` says so.
    """

    def __init__(
        self,
        protocol: Protocol,
        backend: MembershipBackend,
        *,
        failsafe: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[float, float], float] = random.uniform,
        inbox: Inbox | None = None,
        tell: Observer = lambda _: None,
    ) -> None:
        """`failsafe`: seconds for which the backend may be away before this node gives up; None: no limit.

        `clock` tells seconds, `spread` picks a number between two, and news and wishes wait in `inbox`
        (None: a `queue.SimpleQueue`). `tell` is told of changes of the shared state.
        """
        self._backend = backend
        self._inbox: Inbox = queue.SimpleQueue() if inbox is None else inbox
        self._board = Board()
        self._loop = Loop(
            protocol,
            backend,
            board=self._board,
            inbox=self._inbox,
            failsafe=failsafe,
            clock=clock,
            spread=spread,
            tell=tell,
        )
        self._thread = threading.Thread(target=self._run, name="elastic-rendezvous", daemon=True)
        self._wishes_to_join = 0

    def start(self) -> None:
        self._thread.start()

    def post(self, wish: Wish) -> None:
        """Have the loop tell the protocol something."""
        self._inbox.put(wish)

    def join(self, *, master_port: int) -> int:
        """Have the node take part in the next round. Returns the value of `situation.joins` from then on."""
        self._wishes_to_join += 1
        number = self._wishes_to_join
        self.post(lambda _: self._loop.join(number, master_port=master_port))
        return number

    def subscribe(self, listener: Callable[[], None]) -> None:
        self._board.subscribe(listener)

    @property
    def situation(self) -> Situation:
        return self._board.situation

    def wait_for(self, condition: Callable[[Situation], bool], timeout: float) -> bool:
        """Block until the condition holds or an error ends it; False where the time is up."""
        return self._board.wait_for(condition, timeout)

    def wait_gone(self, timeout: float) -> bool:
        """Block until the node has left, also after an error; whether its goodbye was heard in time."""
        return self._board.wait_gone(timeout)

    def stop(self, timeout: float) -> None:
        """End the loop now, with or without a goodbye, and free the backend."""
        self._loop.stopping = True
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    # -- for an owner that runs it without its thread ---------------------------------------------

    @property
    def due(self) -> float | None:
        """When, on its clock, the next turn is to be made even if nothing happens."""
        return self._loop.due

    def turn(self) -> None:
        """One turn, as the thread makes them."""
        self._loop.turn()

    def _run(self) -> None:
        try:
            while not (self._loop.stopping or self.situation.gone):
                self.turn()
        except Exception as e:
            # Whoever waits for this thread must hear that it ended, whatever the reason.
            log.exception("the rendezvous loop failed")
            self._loop.fail(RendezvousError(f"the rendezvous loop failed: {e!r}"))
        finally:
            self._backend.close()
            self._board.end()
