"""The authentication token: fetched once, shared by all threads, renewed when etcd no longer knows it.

The token travels as metadata of each call. gRPC's own call credentials would not do: gRPC refuses to send
them over a plain connection. Passwords and tokens appear in no message and no log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from elastic.etcd import errors


class Tokens:
    """The token of one user. `authenticate` fetches a new one; it takes the seconds it may use.

    The generation counts the tokens fetched. A thread whose call was refused names the generation it used,
    so that of many threads refused at once one renews and the others take what it got.
    """

    def __init__(self, authenticate: Callable[[float], str]) -> None:
        self._authenticate = authenticate
        self._lock = threading.Lock()
        self._token = ""
        self._generation = 0

    @property
    def generation(self) -> int:
        """The number of tokens fetched so far; 0 before the first."""
        return self._generation

    def current(self, timeout: float) -> tuple[int, str]:
        """The generation and the token, fetching the first one if there is none yet."""
        if not self._generation:
            self.renew(0, timeout=timeout)
        return self._generation, self._token

    def renew(self, seen: int, *, timeout: float) -> None:
        """Replaces the token of generation `seen`; does nothing if that has happened already.

        Raises AuthFailed for a wrong name or password, Unavailable if etcd cannot be asked in time. The old
        token stays until there is a new one.
        """
        deadline = time.monotonic() + timeout
        if not self._lock.acquire(timeout=max(timeout, 0)):
            raise errors.DeadlineExceeded("etcd did not renew the authentication token in time")
        try:
            if self._generation == seen:
                self._token = self._authenticate(max(deadline - time.monotonic(), 0.001))
                self._generation += 1
        finally:
            self._lock.release()
