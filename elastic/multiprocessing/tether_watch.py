"""Sees to it that a group's tether holds: its helper is replaced when somebody kills it.

Without that, a helper that the OOM killer took would be missed only when its owner dies as well, and then the
workers would live on. It registers the helper with its owner's epoll, and waits for nothing.
"""

import logging
import os
import select

from elastic.utils.tether import Tether

logger = logging.getLogger(__name__)

_MOST_RENEWALS = 5  # a helper that can't live here must not be started again and again


class TetherWatch:
    """Watches one tether, which stays the caller's, until :meth:`close`."""

    def __init__(self, tether: Tether, epoll: select.epoll) -> None:
        self._tether = tether
        self._epoll = epoll
        self._renewals = 0
        self._pidfd = -1
        self._watch()

    def note(self, fd: int) -> bool:
        """Take an event of the epoll; False if the descriptor isn't the helper's."""
        if fd != self._pidfd:
            return False
        self.close()
        self._renewals += 1
        try:
            self._tether.renew()
            if self._renewals <= _MOST_RENEWALS:
                self._watch()
        except OSError as error:
            logger.error("if this process dies, its workers will live on: %s", error)
        else:
            logger.warning(
                "the process that ends the workers if this one dies was killed: there is another now"
            )
        return True

    def close(self) -> None:
        """Watch no longer. The epoll stays open."""
        if self._pidfd >= 0:
            self._epoll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _watch(self) -> None:
        self._pidfd = self._tether.open_pidfd()
        self._epoll.register(self._pidfd, select.EPOLLIN)
