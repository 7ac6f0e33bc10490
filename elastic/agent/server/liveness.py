"""The health server as an instrument: in each of its turns the loop says where it stands, if anybody asks."""

from __future__ import annotations

import time

from .health import Health, HealthServer
from .instruments import Instrument, Standpoint
from .policy import Phase


class Liveness(Instrument):
    """Answers health checks by `server`, which it closes. `has_etcd`: the rendezvous is in etcd."""

    def __init__(self, server: HealthServer, *, has_etcd: bool) -> None:
        self._server = server
        self._has_etcd = has_etcd
        self._phase: Phase | None = None
        self._since = time.monotonic()

    def turn(self, standpoint: Standpoint) -> None:
        now = time.monotonic()
        if standpoint.phase is not self._phase:
            self._phase, self._since = standpoint.phase, now
        in_world = standpoint.round > 0
        self._server.answer(
            Health(
                state=standpoint.phase.name.lower(),
                ready=standpoint.phase in (Phase.RUNNING, Phase.NOTICE),
                waits_for=standpoint.phase.value,
                since=now - self._since,
                round=standpoint.round if in_world else None,
                rank=standpoint.rank if in_world else None,
                etcd_connected=standpoint.connected if self._has_etcd else None,
            )
        )

    def fileno(self) -> int | None:
        return self._server.fileno()

    def close(self) -> None:
        self._server.close()
