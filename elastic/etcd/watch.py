"""Watching keys: every change once, in order, over all the breaks of the connection.

A watch is one stream, read by a task of the client's loop; what happened goes to the owner's sink, and the
owner decides. It resumes by itself where it stopped, on whichever endpoint answers. It ends only when going
on would be wrong: the history needed is gone, or etcd refuses the user. It never skips and never repeats a
revision.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from elastic.etcd import errors, wire
from elastic.etcd.calls import Caller, Repeat
from elastic.etcd.cursors import Cursors
from elastic.etcd.sink import Sink
from elastic.etcd.stream import WatchStream
from elastic.etcd.values import Event, KeyRange, Keys, as_range
from elastic.utils import backoff

# etcd reports an expired token and a missing permission alike: it is the permission after so many new tokens.
_FRESH_TOKENS = 3


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Changes in one of the ranges (`keys`): whole revisions, in order, `revision` being the last one.

    The ranges of a watch advance independently: a revision that changed two of them comes as two batches.
    """

    watch: Watch
    revision: int
    events: tuple[Event, ...]
    keys: KeyRange


@dataclass(frozen=True, slots=True)
class WatchInterrupted:
    """The connection is lost, once per outage. The watch goes on trying; nothing is missed meanwhile."""

    watch: Watch
    error: errors.EtcdError


@dataclass(frozen=True, slots=True)
class WatchResumed:
    """The watch is connected again; what was missed follows."""

    watch: Watch


@dataclass(frozen=True, slots=True)
class WatchEnded:
    """The watch is over and nothing more comes from it.

    `error` is Compacted or HistoryLost (read afresh, and watch from there), or Denied.
    """

    watch: Watch
    error: errors.EtcdError


class Watch:
    """A running watch over `ranges`; made by `Client.watch`. Close it to stop it."""

    def __init__(
        self,
        caller: Caller,
        ranges: Sequence[Keys],
        *,
        into: Sink,
        start_revision: int,
        forget: Callable[[Watch], None],
    ) -> None:
        self.ranges = tuple(map(as_range, ranges))
        if not self.ranges:
            raise ValueError("a watch needs at least one key or range")
        if start_revision < 0:
            raise ValueError(f"a watch cannot start at revision {start_revision}: expected 0 (now) or more")
        self._caller = caller
        self._cursors = Cursors(self.ranges, start_revision=start_revision)
        self._into = into
        self._forget = forget
        self._closed = threading.Event()
        self._interrupted = False
        self._failures = 0
        self._refusals = 0
        self._job = caller.loop.start(self._run())

    def close(self, *, timeout: float = 5.0) -> None:
        """Stops the watch and waits until it has ended, at most `timeout` seconds. Idempotent.

        After it has returned nothing more is put into the sink, unless the call came from the sink itself.
        """
        if self._caller.forked:
            return
        self._closed.set()
        self._job.stop(timeout)
        # Closed at once, it never ran; ended at once, it was adopted too late.
        self._forget(self)

    async def _run(self) -> None:
        try:
            ended = await self._serve()
        except Exception as fault:
            # A fault of ours must not leave the owner waiting for ever for events.
            self._put(
                WatchEnded(self, errors.EtcdError(f"the watch failed by a fault of its own: {fault!r}"))
            )
            raise
        finally:
            self._forget(self)
        self._put(WatchEnded(self, ended))

    async def _serve(self) -> errors.EtcdError:
        """Streams one after the other; returns the error that ends the watch. Closing it cancels this."""
        while True:
            generation = 0
            try:
                await self._follow()
            except _Refused as refused:
                generation, error = refused.generation, refused.error
            except errors.EtcdError as broken:
                error = broken
            self._failures += 1
            final = await self._renew(generation, error) if isinstance(error, errors.TokenExpired) else error
            if final is not None and not isinstance(final, errors.Unavailable):
                return final
            if not self._interrupted:
                self._interrupted = True
                self._put(WatchInterrupted(self, error))
            await asyncio.sleep(self._pause())

    async def _follow(self) -> NoReturn:
        """Reads one stream until it breaks, which raises."""
        caller = self._caller
        generation, metadata = await caller.metadata(timeout=caller.attempt_timeout)
        line = caller.pool.pick()
        endpoint = str(line.endpoint)
        opened = await caller.pool.stream(line, wire.WATCH, timeout=caller.attempt_timeout, metadata=metadata)
        stream = WatchStream(caller.pool, line, opened, self._cursors.restart())
        live = False
        try:
            while True:
                delivery = self._cursors.feed(await stream.next(), endpoint=endpoint)
                if not live and self._cursors.live:
                    live = True
                    caller.pool.succeeded(line)
                    await self._went_live(endpoint)
                if delivery is not None:
                    self._put(WatchBatch(self, delivery.revision, delivery.events, delivery.keys))
        except errors.TokenExpired as error:
            raise _Refused(generation, error) from error
        finally:
            stream.close()

    async def _went_live(self, endpoint: str) -> None:
        if self._cursors.behind:
            # A member that lags catches up. A store without its history would stay silent until it has grown
            # past the revision we wait for, so the cluster itself is asked.
            request = wire.range_request(self.ranges[0], limit=1, keys_only=True)
            timeout = self._caller.attempt_timeout
            answer = await self._caller.ask(wire.RANGE, request, repeat=Repeat.READ, timeout=timeout)
            if self._cursors.lost(answer.response.header.revision):
                raise errors.HistoryLost(
                    f"etcd at {endpoint} is at revision {answer.response.header.revision}, behind what this "
                    "watch has seen: its data was wiped or restored; read afresh and watch from there"
                )
        self._failures = self._refusals = 0
        if self._interrupted:
            self._interrupted = False
            self._put(WatchResumed(self))

    async def _renew(self, generation: int, error: errors.EtcdError) -> errors.EtcdError | None:
        """A new token after a refusal; returns the error if there is none to be had or it does not help."""
        caller = self._caller
        if self._refusals >= _FRESH_TOKENS:
            return errors.PermissionDenied(f"{error}; grant the user's role these keys, or use another user")
        try:
            await caller.renew_token(generation, error, timeout=caller.attempt_timeout)
        except errors.EtcdError as failure:
            return failure
        self._refusals += 1
        return None

    def _pause(self) -> float:
        """Seconds before the next stream: none for the first try of each member, then growing, random."""
        pool = self._caller.pool
        if self._failures <= len(pool) and pool.has_usable():
            return 0.0
        return backoff.pause(self._failures)

    def _put(self, item: WatchBatch | WatchInterrupted | WatchResumed | WatchEnded) -> None:
        if not self._closed.is_set():
            self._into.put(item)


class _Refused(Exception):
    """A stream was refused; carries the generation of the token that it had."""

    def __init__(self, generation: int, error: errors.EtcdError) -> None:
        super().__init__(str(error))
        self.generation = generation
        self.error = error
