"""The authentication token: fetched once, shared by all calls, renewed when etcd no longer knows it.

The token travels as metadata of each call. Passwords and tokens appear in no message and no log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from elastic.etcd import errors


class Tokens:
    """The token of one user. `authenticate` fetches a new one; it takes the seconds it may use.

    The generation counts the tokens fetched. A call that was refused names the generation it used, so that of
    many refused at once one renews and the others take what it got. For the client's loop only.
    """

    def __init__(self, authenticate: Callable[[float], Awaitable[str]]) -> None:
        self._authenticate = authenticate
        self._renewing: asyncio.Future[None] | None = None
        self._token = ""
        self._generation = 0

    @property
    def generation(self) -> int:
        """The number of tokens fetched so far; 0 before the first."""
        return self._generation

    async def current(self, timeout: float) -> tuple[int, str]:
        """The generation and the token, fetching the first one if there is none yet."""
        if not self._generation:
            await self.renew(0, timeout=timeout)
        return self._generation, self._token

    async def renew(self, seen: int, *, timeout: float) -> None:
        """Replaces the token of generation `seen`; does nothing if that has happened already.

        Raises AuthFailed for a wrong name or password, Unavailable if etcd cannot be asked in time. The old
        token stays until there is a new one.
        """
        deadline = time.monotonic() + timeout
        while self._renewing is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise errors.DeadlineExceeded("etcd did not renew the authentication token in time")
            await asyncio.wait({self._renewing}, timeout=left)
        if self._generation != seen:
            return
        self._renewing = asyncio.get_running_loop().create_future()
        try:
            self._token = await self._authenticate(max(deadline - time.monotonic(), 0.001))
            self._generation += 1
        finally:
            self._renewing.set_result(None)
            self._renewing = None
