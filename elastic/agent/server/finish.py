"""Some workers of a node have ended well, and the others do not end: an instrument that says so, or ends it.

Such workers often wait for those that are gone, and would do so for ever. But one of them may have work of
its own to finish, so without a time limit they are only named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

from .instruments import Entered, Instrument, LoopEvent, LoopState
from .policy import Phase

log = logging.getLogger("elastic.agent")

TELL_SECONDS = 60.0
"""From the first good end until workers that run on are named, without a time limit."""


class Finish(Instrument):
    """Workers that run for `timeout` seconds after the first of their node has ended well count as failed.

    0: they do not, and are named once after a minute.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._ranks: dict[int, int] = {}
        self._since: float | None = None
        self._is_told = False
        self._late: dict[int, str] = {}

    def tell(self, event: LoopEvent) -> None:
        self._ranks, self._since, self._is_told, self._late = {}, None, False, {}
        if isinstance(event, Entered):
            self._ranks = {worker.local_rank: worker.global_rank for worker in event.group.workers}

    def turn(self, state: LoopState) -> None:
        running = self._ranks.keys() - state.succeeded
        if state.phase is not Phase.RUNNING or not state.succeeded or not running:
            self._since = None
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if self._is_told or now < self._since + (self._timeout or TELL_SECONDS):
            return
        self._is_told = True
        done = _listed(self._ranks[rank] for rank in state.succeeded)
        ended = f"rank {done} ended well {now - self._since:.1f} s ago"
        if self._timeout:
            self._late = dict.fromkeys(running, f"it still runs, and {ended} (--finish-timeout)")
        else:
            late = _listed(self._ranks[rank] for rank in running)
            log.warning("%s, and rank %s runs on; --finish-timeout would end that", ended, late)

    def wakeup(self) -> float | None:
        if self._since is None or self._is_told:
            return None
        return self._since + (self._timeout or TELL_SECONDS)

    def failed_workers(self) -> Mapping[int, str]:
        return self._late


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
