"""One node's access to the records of a run in one document: a `MembershipBackend` over a plain store.

Translates between the protocol's words and the document's; decides nothing. A lease is a counter in the
document, which the thread of :mod:`.news` raises. What has no lease stays for as long as the store
does: a store has no clock, so neither `retention` nor `terminal_ttl` ends anything here.

For small clusters: every heartbeat writes the whole document, and every node reads it then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from elastic.rendezvous.backends.api import (
    BackendUnavailable,
    BackendWiped,
    CommitResult,
    Inbox,
    LeaseGone,
    MembershipBackend,
    Reading,
)
from elastic.rendezvous.backends.faults import FaultPoints
from elastic.rendezvous.codec import encode, kind_of
from elastic.rendezvous.core import view
from elastic.rendezvous.core.actions import Commit, Delete, Put
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import Fact, Seen
from elastic.rendezvous.errors import RendezvousStateError
from elastic.rendezvous.settings import RendezvousSettings
from elastic.store import PrefixStore, Store, StoreError

from .document import Document, Refusal
from .ledger import Ledger
from .news import DocumentNews, Lease, NewsThread, seen_in
from .pace import Pace
from .state import RendezvousBackend

_UPKEEP_SECONDS = 3600.0
_EXCHANGE_TIMEOUT = timedelta(minutes=5)  # as stores have it

log = logging.getLogger("elastic.rendezvous")


class DocumentMembership(MembershipBackend):
    """One node's access to the records of one run behind `backend`.

    `store` is where its agents exchange values, under a prefix of the run's own. `place` is what messages
    call all this, and `release`, called at the end with whether the job has ended, frees it. `pace` is its
    time, and `thread` makes the turns of its news; a simulator has its own of both.
    """

    def __init__(
        self,
        backend: RendezvousBackend,
        store: Store,
        *,
        node_id: str,
        settings: RendezvousSettings,
        name: str = "",
        place: str = "",
        release: Callable[[bool], None] | None = None,
        faults: FaultPoints | None = None,
        pace: Pace | None = None,
        thread: Callable[[DocumentNews], NewsThread] = NewsThread,
    ) -> None:
        self._name = name or backend.name
        self._place = place or f"the rendezvous state at {backend.key!r}"
        self._store = store
        self._prefix = f"elastic.rendezvous.{settings.run_id}/"
        self._node_id = node_id
        self._own_key = view.node_key(node_id)
        self._settings = settings
        self._release = release
        self._faults = FaultPoints() if faults is None else faults
        self._pace = Pace() if pace is None else pace
        self._thread = thread
        self._ledger = Ledger(backend, pace=self._pace)
        self._lease = Lease()
        self._leases = 0
        self._known: Document | None = None
        self._nodes_followed = False
        self._news: NewsThread | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def place(self) -> str:
        return self._place

    # -- reading ----------------------------------------------------------------------------------

    def start(self, inbox: Inbox) -> Reading:
        known: Document | None = None
        try:
            known = self._read()
            reading = self._reading(known, nodes=False)
        except RendezvousStateError as e:
            # Whoever wants to join is told of it, as of any record that cannot be read.
            reading = Reading(0, {}, {view.ROUND: e})
        news = DocumentNews(
            self._ledger,
            inbox,
            lease=self._lease,
            follows=self._follows,
            ttl=self._settings.ttl.total_seconds(),
            interval=self._settings.heartbeat_seconds,
            pace=self._pace,
        )
        news.begin(known)
        self._news = self._thread(news)
        self._news.start()
        return reading

    def scope(self, *, nodes: bool) -> tuple[str, ...]:
        return view.followed(self._node_id, nodes=nodes)

    def read(self, *, nodes: bool) -> Reading:
        if self._news is not None and self._news.failure is not None:
            raise RuntimeError(f"the backend {self._name!r} is broken") from self._news.failure
        return self._reading(self._readable(self._read), nodes=nodes)

    def survey(self) -> Reading:
        return self._reading(self._readable(lambda: self._ledger.read().document), nodes=True)

    def follow_nodes(self) -> Reading:
        # From now on, and before the reading: so that it misses nothing of what is not in the news.
        self._nodes_followed = True
        return self._reading(self._readable(self._read), nodes=True)

    def unfollow_nodes(self) -> None:
        self._nodes_followed = False

    def _follows(self, key: str) -> bool:
        if key.startswith(view.NODES) and key != self._own_key:
            return self._nodes_followed
        return kind_of(key) is not None and not key.startswith(view.HISTORY)

    def _read(self) -> Document:
        document = self._ledger.read().document
        self._check(document)
        return document

    def _readable(self, read: Callable[[], Document]) -> Document:
        """A document that is none any more stops nobody who has known it: it is away until it is mended."""
        try:
            return read()
        except RendezvousStateError as e:
            raise BackendUnavailable(str(e)) from e

    def _check(self, document: Document) -> None:
        """BackendWiped, once, where what was known of the document holds no more."""
        known, self._known = self._known, document
        if known is None:
            return
        if document.history != known.history or document.revision < known.revision:
            raise BackendWiped(
                f"{self._place} has lost the records of the run, or an older copy of them was restored"
            )

    def _reading(self, document: Document, *, nodes: bool) -> Reading:
        scope = self.scope(nodes=nodes)
        found: dict[str, Seen[Record]] = {}
        unreadable: dict[str, RendezvousStateError] = {}
        for key, stored in document.records.items():
            if key not in scope and not (nodes and key.startswith(view.NODES)):
                continue
            try:
                found[key] = seen_in(key, stored)
            except RendezvousStateError as e:
                unreadable[key] = e
        return Reading(document.revision, found, unreadable)

    # -- writing ----------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> CommitResult:
        return self._faults.around(commit.step, lambda: self._carry_out(commit))

    def _carry_out(self, commit: Commit) -> CommitResult:
        stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds")

        def value_of(record: Record) -> Any:
            return json.loads(encode(record, written_at=stamp))

        def applied(document: Document) -> Document | Refusal:
            self._check(document)
            return document.applied(commit, lease=self._lease.id, value_of=value_of)

        refusal, document = self._change(applied, seconds=self._settings.read_timeout.total_seconds())
        if refusal is Refusal.LEASE:
            raise LeaseGone("this node's lease has ended, or it holds none")
        if refusal is not None:
            return CommitResult(succeeded=False)
        self._known = document
        self._forget_stores(commit)
        return CommitResult(succeeded=True, facts=tuple(self._facts(commit, document)))

    def _change(
        self, change: Callable[[Document], Document | Refusal], *, seconds: float
    ) -> tuple[Refusal | None, Document]:
        try:
            changed = self._ledger.change(change, seconds=seconds)
        except RendezvousStateError as e:
            raise BackendUnavailable(str(e)) from e
        return changed.refusal, changed.held.document

    def _facts(self, commit: Commit, document: Document) -> list[Fact]:
        """What this node knows of its own write before the news tells it."""
        facts = []
        written = {o.key: o.record for o in commit.operations if isinstance(o, Put)}
        if commit.claim is not None:
            written[commit.claim.key] = commit.claim.record
        for key, record in written.items():
            stored = document.records[key]
            if stored.modified == document.revision:
                facts.append(Fact(key, stored.modified, Seen(record, stored.modified, stored.created)))
            else:  # somebody else has what was claimed; where that is no record, the news tells
                facts += self._claimed(key, document)
        deleted = [o.key for o in commit.operations if isinstance(o, Delete) and not o.key.endswith("/")]
        return [*facts, *(Fact(key, document.revision, None) for key in deleted)]

    def _claimed(self, key: str, document: Document) -> list[Fact]:
        stored = document.records[key]
        try:
            return [Fact(key, stored.modified, seen_in(key, stored))]
        except RendezvousStateError:
            return []

    def _forget_stores(self, commit: Commit) -> None:
        """What agents of rounds that are over have exchanged lies in the store itself."""
        prefixes = [
            self._prefix + o.key
            for o in commit.operations
            if isinstance(o, Delete) and o.key.startswith(view.STORE)
        ]
        if not prefixes:
            return
        try:
            for key in self._store.list_keys():
                if key.startswith(tuple(prefixes)):
                    self._store.delete_key(key)
        except StoreError as e:
            log.debug("what agents exchanged in earlier rounds is left: %s", e)

    # -- leases -----------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        """A lease that lives is kept: it is this node's own, whatever was thought of it."""
        if self._lease.id and self.lease_lives():
            return
        self._leases += 1
        lease = f"{self._node_id}/{self._leases}"

        def granted(document: Document) -> Document | Refusal:
            self._check(document)
            return document.granted(lease)

        self._change(granted, seconds=self._settings.read_timeout.total_seconds())
        self._lease.id = lease

    def lease_lives(self) -> bool:
        return self._lease.id in self._readable(self._read).leases

    def drop_lease(self) -> bool:
        lease, self._lease.id = self._lease.id, ""
        if not lease:
            return True
        seconds = self._settings.goodbye_seconds
        try:
            self._change(lambda document: document.revoked(lease), seconds=seconds)
        except BackendUnavailable:
            return False
        return True

    def upkeep(self, *, leads: bool) -> float:  # noqa: ARG002 - nothing here ends by itself
        return _UPKEEP_SECONDS

    # -- the rest ---------------------------------------------------------------------------------

    def store(self, prefix: str) -> Store:
        exchange = PrefixStore((self._prefix + prefix).rstrip("/"), self._store)
        exchange.set_timeout(_EXCHANGE_TIMEOUT)
        return exchange

    def close(self) -> None:
        self._pace.end()
        told = None if self._news is None else self._news.news.told
        if self._release is not None:
            # First, as it cuts short the wait of the thread.
            self._release(told is not None and view.CLOSED in told.records)
        elif self._news is not None:
            self._news.cut_short()
        if self._news is not None:
            self._news.join()
