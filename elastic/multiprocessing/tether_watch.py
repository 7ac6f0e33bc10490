"""Sees to it that a group's tether holds: its helper is replaced when somebody kills it.

Without that, a helper that the OOM killer took would be missed only when its owner dies as well, and then the
workers would live on. It registers the helper with its owner's epoll, and waits for nothing.
"""

import logging
import os
import select
import time

from elastic.utils.tether import Tether

logger = logging.getLogger(__name__)

_MOST_RENEWALS = 5  # in a row: a helper that can't live here must not be started again and again
_LONG_SECONDS = 60.0  # one that has lived so long can live here


class TetherWatch:
    """Watches one tether, which stays the caller's, until :meth:`close`."""

    def __init__(self, tether: Tether, epoll: select.epoll) -> None:
        self._tether = tether
        self._epoll = epoll
        self._renewals = 0
        self._since = 0.0
        self._pidfd = -1
        self._watch()

    def note(self, fd: int) -> bool:
        """Take an event of the epoll; False if the descriptor isn't the helper's."""
        if fd != self._pidfd:
            return False
        self.close()
        self._renewals = self._renewals + 1 if time.monotonic() < self._since + _LONG_SECONDS else 1
        is_last = self._renewals > _MOST_RENEWALS
        try:
            self._tether.renew()
            if not is_last:
                self._watch()
        except OSError as error:
            logger.error("if this process dies, its workers will live on: %s", error)
            return True
        killed = "the process that ends the workers if this one dies was killed"
        if is_last:
            times = self._renewals
            logger.error("%s %d times in a row: there is another, the last that is started", killed, times)
        else:
            logger.warning("%s: there is another now", killed)
        return True

    def close(self) -> None:
        """Watch no longer. The epoll stays open."""
        if self._pidfd >= 0:
            self._epoll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _watch(self) -> None:
        self._since = time.monotonic()
        self._pidfd = self._tether.open_pidfd()
        self._epoll.register(self._pidfd, select.EPOLLIN)
