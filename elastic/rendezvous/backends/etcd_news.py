"""What etcd's client tells and refuses, in the words of the rendezvous. Decides nothing."""

from __future__ import annotations

import threading

from elastic import etcd
from elastic.etcd import (
    Compacted,
    EtcdError,
    HistoryLost,
    LeaseKeeper,
    LeaseLost,
    LeaseNotFound,
    Unavailable,
    Watch,
    WatchBatch,
    WatchEnded,
    WatchInterrupted,
    WatchResumed,
)
from elastic.rendezvous.codec import decode, kind_of
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import ROUND, Fact, Seen
from elastic.rendezvous.errors import RendezvousStateError

from .api import (
    BackendRefused,
    BackendUnavailable,
    BackendWiped,
    Inbox,
    Interrupted,
    Learned,
    LeaseEnded,
    LeaseGone,
    Missed,
    News,
    Resumed,
    Unreadable,
)

ClientItem = WatchBatch | WatchInterrupted | WatchResumed | WatchEnded | LeaseLost


class EtcdInbox:
    """Puts what etcd's client tells into the shell's inbox, in the protocol's words.

    Each watch puts from a thread of its own. News is interrupted while any watch is: where one that is
    given up was the last of these, nobody else would say that it comes again.
    """

    def __init__(self, inbox: Inbox, prefix: str) -> None:
        self._inbox = inbox
        self._prefix = prefix
        self.ended: set[Watch] = set()
        self.keeper: LeaseKeeper | None = None
        """Who keeps this node's lease. That an earlier one was lost is no news."""
        self.run_lease = 0
        """The lease on which the run's round hangs, as far as is known."""
        self._lock = threading.Lock()
        self._interrupted: set[Watch] = set()

    def dismiss(self, watch: Watch) -> None:
        """It has been closed, and tells nothing any more."""
        with self._lock:
            if watch in self._interrupted:
                self._resumed(watch)

    def put(self, item: ClientItem, /) -> None:
        if isinstance(item, WatchInterrupted):
            with self._lock:
                self._interrupted.add(item.watch)
                self._inbox.put(Interrupted(str(item.error)))
        elif isinstance(item, WatchResumed):
            with self._lock:
                self._resumed(item.watch)
        else:
            for news in self._translate(item):
                self._inbox.put(news)

    def _resumed(self, watch: Watch) -> None:
        self._interrupted.discard(watch)
        if not self._interrupted:
            self._inbox.put(Resumed())

    def _translate(self, item: WatchBatch | WatchEnded | LeaseLost) -> list[News]:
        if isinstance(item, WatchBatch):
            return self._changes(item)
        if isinstance(item, WatchEnded):
            # The watch is made anew after the read that this asks for.
            self.ended.add(item.watch)
            with self._lock:
                self._interrupted.discard(item.watch)
            return [Missed(str(item.error), wiped=isinstance(item.error, HistoryLost))]
        return [LeaseEnded(item.reason, silent=item.silent)] if item.keeper is self.keeper else []

    def _changes(self, batch: WatchBatch) -> list[News]:
        facts: list[Fact] = []
        news: list[News] = []
        for event in batch.events:
            key = text_of(event.kv.key)[len(self._prefix) :]
            if key == ROUND and event.kv.lease:
                self.run_lease = event.kv.lease
            try:
                seen = None if event.deleted else seen_in(key, event.kv)
                facts.append(Fact(key, event.kv.mod_revision, seen))
            except RendezvousStateError as e:
                news.append(Unreadable(key, e))
        return [*news, Learned(tuple(facts))] if facts else news


class translated:  # noqa: N801 - reads as a statement: `with translated():`
    """Turns the client's errors into the backend's, in one place."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, LeaseNotFound):
            raise LeaseGone(str(error)) from error
        if isinstance(error, HistoryLost):
            raise BackendWiped(str(error)) from error
        if isinstance(error, (Unavailable, Compacted)):
            raise BackendUnavailable(str(error), maybe=error.applied == "maybe") from error
        if isinstance(error, EtcdError):
            raise BackendRefused(str(error)) from error


def text_of(key: bytes) -> str:
    return key.decode(errors="surrogateescape")


def seen_in(key: str, kv: etcd.KeyValue) -> Seen[Record]:
    kind = kind_of(key)
    if kind is None:
        raise AssertionError(f"{key} is not a record's key")
    return Seen(decode(key, kv.value, kind), kv.mod_revision, kv.create_revision)
