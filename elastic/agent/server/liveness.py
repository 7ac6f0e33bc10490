"""The health server as an instrument: in each of its turns the loop says where it stands, if anybody asks.

Once the loop makes no more turns, it may still take the agent a while to say goodbye to a backend that does
not answer. Meanwhile a thread answers, which `close` joins.
"""

from __future__ import annotations

import threading
import time

from .health import Health, HealthServer
from .instruments import Ended, Instrument, LoopEvent, LoopState
from .policy import Phase
from .waiting import Doorbell, wait


class Liveness(Instrument):
    """Answers health checks by `server`, which it closes. `has_etcd`: the rendezvous is in etcd."""

    def __init__(self, server: HealthServer, *, has_etcd: bool) -> None:
        self._server = server
        self._has_etcd = has_etcd
        self._phase: Phase | None = None
        self._since = time.monotonic()
        self._last = LoopState(phase=Phase.JOINING)
        self._farewell: threading.Thread | None = None
        self._is_over = False
        self._bell = Doorbell()

    def turn(self, state: LoopState) -> None:
        self._last = state
        now = time.monotonic()
        if state.phase is not self._phase:
            self._phase, self._since = state.phase, now
        self._answer(
            state.phase.name.lower(),
            state.phase.value,
            is_ready=state.phase in (Phase.RUNNING, Phase.NOTICE),
        )

    def tell(self, event: LoopEvent) -> None:
        if isinstance(event, Ended) and self._farewell is None:
            self._since = time.monotonic()
            self._farewell = threading.Thread(target=self._say_farewell, name="elastic-liveness")
            self._farewell.start()

    def fileno(self) -> int | None:
        return self._server.fileno()

    def close(self) -> None:
        if self._farewell is not None:
            self._is_over = True
            self._bell.ring()
            self._farewell.join()
        self._server.close()
        self._bell.close()

    def _say_farewell(self) -> None:
        while (fd := self._server.fileno()) is not None:
            wait([fd, self._bell.fileno()], None)
            if self._is_over:
                return
            self._answer("leaving", "it says goodbye to the other nodes", is_ready=False)

    def _answer(self, state: str, waits_for: str, *, is_ready: bool) -> None:
        at = self._last
        in_world = at.round > 0
        self._server.answer(
            Health(
                state=state,
                ready=is_ready,
                waits_for=waits_for,
                since=time.monotonic() - self._since,
                round=at.round if in_world else None,
                rank=at.rank if in_world else None,
                etcd_connected=at.connected if self._has_etcd else None,
            )
        )
