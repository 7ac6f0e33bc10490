"""How a call is carried out: deadlines, retries, failover, authentication.

All of it runs in the client's loop; `call` and `run` are the way in for every other thread, and wait.
One call is one or more attempts, each on one endpoint, within one deadline. What may be tried again depends
on what the failed attempt may have done already: a write that must not happen twice is repeated only if the
failed attempt has certainly changed nothing. The error that ends a call speaks for all of its attempts.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

import tenacity

from elastic.etcd import errors, forks, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.auth import Tokens
from elastic.etcd.channels import TELLING_SECONDS, Line, Pool
from elastic.etcd.loop import Loop
from elastic.etcd.rpc import Metadata
from elastic.etcd.tls import Tls
from elastic.etcd.wire import Method, Q, R
from elastic.utils import backoff
from elastic.utils.endpoints import Endpoint

T = TypeVar("T")

# Refuse at once where there is no leader, instead of waiting for one until the deadline.
REQUIRE_LEADER = ("hasleader", "true")

_MINIMUM_ATTEMPT = 1.0
# With less time left than this another attempt would only blur what the last one said.
_USEFUL_SECONDS = 0.05


Observer = Callable[[str, float, bool], None]
"""Is told of each call that is over: the name of its method, its seconds in all, and whether it failed."""


class Repeat(Enum):
    """What repeating a request would mean."""

    READ = "changes nothing"
    SAFE = "done twice is the same as once"
    ONCE = "must not be done twice"


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """A response, who gave it, and the monotonic time at which the attempt that got it was sent."""

    response: R
    endpoint: Endpoint
    sent: float


class Caller:
    """Carries out calls. `timeout` arguments are seconds; None is the default given here.

    What is a coroutine is for the loop, the rest for any thread.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        tls: Tls | None,
        user: str | None,
        password: str | None,
        timeout: float,
        attempt_timeout: float,
    ) -> None:
        self.pool = Pool(endpoints, tls=tls)
        self.loop = Loop()
        self.default_timeout = timeout
        self.attempt_timeout = attempt_timeout
        self.closed = threading.Event()
        self.observer: Observer | None = None
        self.names = ", ".join(map(str, endpoints))
        self._forks = forks.current()
        self._user = user
        self._password = password
        self.tokens = Tokens(self._fetch_token) if user is not None else None

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that made the client."""
        return self._forks != forks.current()

    def require_usable(self) -> None:
        """Raises ForkedClient or ClientClosed."""
        if self._forks != forks.current():
            raise errors.ForkedClient(
                "this etcd client was made before a fork and works only in the parent process: make a new "
                "client in the child, or start the child by exec"
            )
        if self.closed.is_set():
            raise errors.ClientClosed("the etcd client is closed")

    def call(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        repeat: Repeat,
        timeout: float | None = None,
        require_leader: bool = True,
    ) -> R:
        """The response, within `timeout` seconds. Raises EtcdError, whose `applied` covers every attempt."""
        answer = self.ask(method, request, repeat=repeat, timeout=timeout, require_leader=require_leader)
        return self.run(answer, timeout=timeout).response

    def call_on(self, line: Line, method: Method[Q, R], request: Q, *, timeout: float) -> R:
        """One attempt on one line, without authentication. Raises EtcdError."""
        return self.run(self.pool.call(line, method, request, timeout=timeout), timeout=timeout)

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout: float | None) -> T:
        """What the coroutine returns or raises; it keeps within `timeout` seconds by itself."""
        try:
            self.require_usable()
        except errors.ClientClosed:
            coroutine.close()
            raise
        return self.loop.run(coroutine, timeout=self.default_timeout if timeout is None else timeout)

    async def ask(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        repeat: Repeat,
        timeout: float | None = None,
        require_leader: bool = True,
    ) -> Answer[R]:
        """As `call`, with the circumstances of the answer."""
        self.require_usable()
        began = time.monotonic()
        failed = True
        try:
            answer = await self._ask(
                method, request, repeat=repeat, timeout=timeout, require_leader=require_leader
            )
            failed = False
            return answer
        finally:
            if self.observer is not None:
                self.observer(method.name, time.monotonic() - began, failed)

    async def _ask(
        self, method: Method[Q, R], request: Q, *, repeat: Repeat, timeout: float | None, require_leader: bool
    ) -> Answer[R]:
        call = _Call(
            self,
            repeat=repeat,
            deadline=time.monotonic() + (self.default_timeout if timeout is None else timeout),
            require_leader=require_leader,
        )
        try:
            return await call.attempt(method, request)
        except errors.EtcdError as error:
            pause = call.first_pause()
            if not call.worth_repeating(error):
                raise
            if call.out_of_time(pause):
                raise call.exhausted(error) from error
        # Only a call that failed pays for the retry machinery.
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(call.worth_repeating),
            stop=lambda state: call.out_of_time(state.upcoming_sleep),
            wait=call.pause,
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            await asyncio.sleep(pause)
            return await retrying(call.attempt, method, request)
        except errors.EtcdError as error:
            if call.worth_repeating(error):
                raise call.exhausted(error) from error
            call.sum_up(error)
            raise

    async def metadata(self, *, timeout: float, require_leader: bool = True) -> tuple[int, Metadata]:
        """The generation of the token, and the metadata for a call."""
        leader: Metadata = (REQUIRE_LEADER,) if require_leader else ()
        if self.tokens is None:
            return 0, leader
        generation, token = await self.tokens.current(timeout)
        return generation, (*leader, ("token", token)) if token else leader

    async def renew_token(self, seen: int, error: errors.EtcdError, *, timeout: float) -> None:
        """After an error that says that the token is not valid. Raises AuthFailed if there is no user."""
        if self.tokens is None:
            raise errors.AuthFailed(
                f"etcd at {self.names} requires authentication: give a user name and a password"
            ) from error
        await self.tokens.renew(seen, timeout=timeout)

    def attempt_seconds(self, *, attempt: int, remaining: float) -> float:
        """How long attempt number `attempt` (from 0) may take.

        A share of what remains, so that every member gets its try; longer after each full round, so that a
        cluster that is slow, not dead, is given its time.
        """
        members = len(self.pool)
        longest = self.attempt_timeout * (1 + attempt // members)
        share = max(min(_MINIMUM_ATTEMPT, longest), min(longest, remaining / members))
        return max(min(remaining, share), 0.001)

    async def _fetch_token(self, timeout: float) -> str:
        """One authentication, tried on the members in turn until one answers."""
        request = pb.AuthenticateRequest(name=self._user or "", password=self._password or "")
        deadline = time.monotonic() + timeout
        attempt = 0
        while True:
            seconds = self.attempt_seconds(attempt=attempt, remaining=deadline - time.monotonic())
            line = self.pool.pick()
            try:
                return (await self.pool.call(line, wire.AUTHENTICATE, request, timeout=seconds)).token
            except errors.AuthNotEnabled:
                return ""
            except errors.Unavailable as error:
                attempt += 1
                # The call that needs the token has not been sent yet.
                error.applied = "no"
                if attempt == len(self.pool) or time.monotonic() >= deadline:
                    raise

    def close(self) -> None:
        """Ends every call with ClientClosed, and the loop. Nothing in a forked child."""
        self.closed.set()
        if not self.forked:
            self.loop.close(self.pool.close)


class _Call:
    """The state of one call over its attempts."""

    __slots__ = (
        "_attempts",
        "_caller",
        "_deadline",
        "_maybe_applied",
        "_repeat",
        "_require_leader",
        "_seconds",
        "_started",
        "_told",
    )

    def __init__(self, caller: Caller, *, repeat: Repeat, deadline: float, require_leader: bool) -> None:
        self._caller = caller
        self._repeat = repeat
        self._deadline = deadline
        self._require_leader = require_leader
        self._attempts = 0
        self._maybe_applied = False
        self._started = time.monotonic()
        self._seconds = 0.0
        self._told: errors.Unavailable | None = None

    async def attempt(self, method: Method[Q, R], request: Q) -> Answer[R]:
        caller = self._caller
        caller.require_usable()
        sent = time.monotonic()
        seconds = caller.attempt_seconds(attempt=self._attempts, remaining=self._deadline - sent)
        self._attempts += 1
        generation, metadata = await caller.metadata(timeout=seconds, require_leader=self._require_leader)
        if caller.tokens is not None:
            sent = time.monotonic()
            seconds = max(min(seconds, self._deadline - sent), 0.001)
        line = caller.pool.pick()
        self._seconds = seconds
        try:
            response = await caller.pool.call(line, method, request, timeout=seconds, metadata=metadata)
            return Answer(response, line.endpoint, sent)
        except errors.TokenExpired as error:
            remaining = self._deadline - time.monotonic()
            await caller.renew_token(generation, error, timeout=min(remaining, caller.attempt_timeout))
            raise
        except errors.EtcdError as error:
            if isinstance(error, errors.Unavailable) and not isinstance(error, errors.DeadlineExceeded):
                self._told = error
            if self._repeat is Repeat.READ:
                error.applied = "no"
            elif error.applied == "maybe":
                self._maybe_applied = True
            raise

    def worth_repeating(self, error: BaseException) -> bool:
        if isinstance(error, errors.TokenExpired):
            return True
        if not isinstance(error, errors.Unavailable):
            return False
        return self._repeat is not Repeat.ONCE or error.applied == "no"

    def first_pause(self) -> float:
        """Seconds before the second attempt: none if there is another member to turn to."""
        return self._clip(0.0 if self._unasked() else 0.05)

    def pause(self, state: tenacity.RetryCallState) -> float:
        """Seconds before a later attempt: none in the first round over the members, then growing, random."""
        return self._clip(0.0 if self._unasked() else backoff.pause(state.attempt_number))

    def out_of_time(self, pause: float) -> bool:
        return time.monotonic() + pause + _USEFUL_SECONDS >= self._deadline

    def sum_up(self, error: errors.EtcdError) -> None:
        """Makes the last attempt's error speak for all that were made."""
        if self._maybe_applied:
            error.applied = "maybe"

    def exhausted(self, error: errors.EtcdError) -> errors.EtcdError:
        """The error when the time has run out, given the last attempt's."""
        self.sum_up(error)
        applied, told = error.applied, error
        kind: type[errors.EtcdError] = type(error)
        if isinstance(error, errors.TokenExpired):
            # The token has been renewed, or was being renewed: nobody is denied anything, the time was short.
            kind = errors.DeadlineExceeded
        elif kind is errors.DeadlineExceeded and self._told and self._seconds < TELLING_SECONDS:
            # The last attempt had no time to learn anything: what an earlier one was told says more.
            told, kind = self._told, type(self._told)
        seconds = time.monotonic() - self._started
        tried = f"{self._attempts} attempt{'s' if self._attempts > 1 else ''} in {seconds:.1f} s"
        return kind(f"{told} ({tried} at {self._caller.names})", applied=applied)

    def _unasked(self) -> bool:
        pool = self._caller.pool
        return self._attempts < len(pool) and pool.has_usable()

    def _clip(self, seconds: float) -> float:
        """A pause may not use up the time of the attempt that should follow it."""
        return max(min(seconds, (self._deadline - time.monotonic()) / 2), 0.0)
