"""Leases: granting, renewing and ending them, and keeping one alive.

A kept lease is the only proof that its holder is still a member, so the keeper is careful in one direction:
it counts the time to live from the moment at which the last answered renewal was *sent*, by the monotonic
clock, and gives the lease up then, also if etcd might still hold it. Until then it outlives every error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from elastic.etcd import errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.calls import Caller, Repeat
from elastic.etcd.loop import BEAT, beat_before
from elastic.etcd.sink import Sink
from elastic.etcd.values import Lease

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5


def grant(caller: Caller, ttl: float, *, lease_id: int | None, timeout: float | None) -> Lease:
    """See `Client.lease_grant`."""
    seconds = math.ceil(ttl)
    if seconds < 1:
        raise ValueError(f"a lease needs a time to live of at least one second, not {ttl}")
    if lease_id is not None and lease_id < 1:
        raise ValueError(f"a lease id must be positive, not {lease_id}")
    wanted = lease_id or secrets.randbelow((1 << 63) - 1) + 1
    request = pb.LeaseGrantRequest(TTL=seconds, ID=wanted)
    try:
        response = caller.call(wire.LEASE_GRANT, request, repeat=Repeat.SAFE, timeout=timeout)
    except errors.LeaseExists:
        return Lease(wanted, seconds)
    return Lease(response.ID, response.TTL)


def revoke(caller: Caller, lease_id: int, *, timeout: float | None) -> None:
    """See `Client.lease_revoke`."""
    request = pb.LeaseRevokeRequest(ID=lease_id)
    try:
        caller.call(wire.LEASE_REVOKE, request, repeat=Repeat.SAFE, timeout=timeout)
    except errors.LeaseNotFound:
        return


def renew(caller: Caller, lease_id: int, *, timeout: float | None) -> int:
    """See `Client.keep_alive_once`."""
    request = pb.LeaseKeepAliveRequest(ID=lease_id)
    return caller.call(wire.LEASE_KEEP_ALIVE, request, repeat=Repeat.SAFE, timeout=timeout).TTL


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease has ended, or must be taken as ended; put once, and never after `close`.

    `silent` says that etcd gave no answer for that long, rather than the answer that the lease is gone.
    """

    keeper: LeaseKeeper
    reason: str
    silent: bool = False


class LeaseKeeper:
    """A lease that is kept alive; made by `Client.keep_lease`. Close it to end it.

    `id` and `ttl` (seconds) are the lease's. A lost lease stays lost: whoever still wants to be a member asks
    for a new one, and knows that in between it was not.
    """

    def __init__(
        self,
        caller: Caller,
        lease: Lease,
        *,
        granted_at: float,
        answer_within: float,
        into: Sink,
        renewed: Callable[[], None],
        forget: Callable[[LeaseKeeper], None],
    ) -> None:
        self.id = lease.id
        self.ttl = lease.ttl
        self._caller = caller
        self._answer_within = answer_within
        self._into = into
        self._renewed = renewed
        self._forget = forget
        self._renewed_at = granted_at
        self._expires_at = granted_at + lease.ttl
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._lost = False
        self._job = caller.loop.start(self._run())

    def alive(self) -> bool:
        """Whether the lease is certainly held at this moment."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """Seconds for which the lease is certainly held without another renewal; 0 if lost or closed."""
        if self._lost or self._closed.is_set():
            return 0.0
        return max(self._expires_at - time.monotonic(), 0.0)

    def close(self, *, revoke: bool = True, timeout: float = 5.0) -> bool:
        """Stops keeping the lease; with `revoke`, ends it, so that its keys go now. Idempotent.

        Takes at most about `timeout` seconds. A lease that cannot be revoked ends by itself after its `ttl`.
        Returns whether this call has seen it end.
        """
        if self._caller.forked:
            return False
        with self._lock:
            first = not self._closed.is_set()
            self._closed.set()
        deadline = time.monotonic() + timeout
        ended = first and revoke and self._end(timeout=timeout)
        self._job.stop(max(deadline - time.monotonic(), 0.1))
        # Closed at once, it never ran; ended at once, it was adopted too late.
        self._forget(self)
        return ended

    def _end(self, *, timeout: float) -> bool:
        try:
            revoke(self._caller, self.id, timeout=timeout)
        except errors.ClientClosed:
            return False
        except errors.EtcdError as error:
            log.warning(
                "lease %x could not be revoked and ends by itself within %d s: %s", self.id, self.ttl, error
            )
            return False
        return True

    async def _run(self) -> None:
        try:
            await self._keep()
        finally:
            self._forget(self)

    async def _keep(self) -> None:
        pause = self._until_renewal()
        trouble: errors.EtcdError | None = None
        while True:
            await asyncio.sleep(max(pause, 0.0))
            left = self._expires_at - time.monotonic()
            if left <= 0:
                because = (
                    f" without an answer from etcd ({trouble})"
                    if trouble
                    else " while this process stood still"
                )
                reason = f"lease {self.id:x} is lost: its {self.ttl} s passed{because}"
                self._lose(reason, silent=trouble is not None)
                return
            try:
                answer = await self._caller.ask(
                    wire.LEASE_KEEP_ALIVE,
                    pb.LeaseKeepAliveRequest(ID=self.id),
                    repeat=Repeat.SAFE,
                    timeout=min(left, self._answer_within),
                )
            except errors.EtcdError as error:
                if trouble is None:
                    log.info("lease %x is not renewed at present: %s", self.id, error)
                trouble = error
                pause = min(_RETRY_SECONDS, self._expires_at - time.monotonic())
                continue
            if answer.response.TTL <= 0:
                self._lose(f"lease {self.id:x} is lost: etcd says that it has expired or was revoked")
                return
            if trouble is not None:
                log.info("lease %x is renewed again", self.id)
                trouble = None
            self._renewed_at = answer.sent
            self._expires_at = answer.sent + answer.response.TTL
            self._renewed()
            pause = self._until_renewal()

    def _until_renewal(self) -> float:
        due = self._renewed_at + self.ttl / 3
        if self.ttl / 3 >= 2 * BEAT:
            due = beat_before(due)
        return due - time.monotonic()

    def _lose(self, reason: str, *, silent: bool = False) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._lost = True
        self._into.put(LeaseLost(self, reason, silent))
