"""One node's access to the records of a run in etcd v3: guards are compares, liveness is a lease.

Translates between the protocol's words and `elastic.etcd`; decides nothing. Three kinds of lease:

- this node's own, kept alive while the agent lives; its record and its leadership hang on it;
- the run's, of `retention` seconds: the round, the history and the agents' store hang on it. It is named
  by the ``round`` key, so every leader keeps the same one alive;
- the terminal record's own, of `terminal_ttl` seconds, which nobody keeps alive.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime, timezone

from elastic import etcd
from elastic.etcd import (
    Client,
    EtcdError,
    LeaseKeeper,
    LeaseNotFound,
    Watch,
)
from elastic.rendezvous.codec import encode
from elastic.rendezvous.core import view
from elastic.rendezvous.core.actions import Absent, Commit, Delete, Guard, Keep, Put, Unchanged
from elastic.rendezvous.core.changes import BackendAnswered, LeaseRenewed, Observer
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import Fact, Seen
from elastic.rendezvous.errors import RendezvousStateError
from elastic.rendezvous.settings import RendezvousSettings
from elastic.store.etcd import EtcdStore

from .api import (
    CommitResult,
    Inbox,
    LeaseGone,
    MembershipBackend,
    Reading,
)
from .etcd_news import EtcdInbox, seen_in, text_of, translated
from .faults import FaultPoints

NAME = "etcd"

_FIND_SECONDS = 300.0

log = logging.getLogger("elastic.rendezvous")


class EtcdMembership(MembershipBackend):
    """One node's access to the records of one run in etcd. Owns the client."""

    def __init__(
        self,
        client: Client,
        *,
        prefix: str,
        node_id: str,
        settings: RendezvousSettings,
        faults: FaultPoints | None = None,
    ) -> None:
        self._faults = FaultPoints() if faults is None else faults
        self._client = client
        self._prefix = prefix
        self._settings = settings
        self._node_id = node_id
        self._inbox: EtcdInbox | None = None
        self._watch: Watch | None = None
        self._nodes_watch: Watch | None = None
        self._keeper: LeaseKeeper | None = None
        self._tell: Observer = lambda _: None

    @property
    def name(self) -> str:
        return NAME

    def observe(self, tell: Observer) -> None:
        self._tell = tell
        self._client.observe(
            lambda operation, seconds, failed: tell(BackendAnswered(operation, seconds, failed))
        )

    # -- reading ----------------------------------------------------------------------------------

    def start(self, inbox: Inbox) -> Reading:
        self._inbox = EtcdInbox(inbox, self._prefix)
        reading = self.read(nodes=False)
        self._follow(reading.revision + 1)
        return reading

    def scope(self, *, nodes: bool) -> tuple[str, ...]:
        return view.followed(self._node_id, nodes=nodes)

    def read(self, *, nodes: bool) -> Reading:
        revision, kvs = self._fetch(nodes=nodes)
        self._note_run_lease(kvs)
        reading = self._reading(revision, kvs)
        ended = self._told.ended
        if self._watch in ended:
            self._follow(reading.revision + 1)
        if self._nodes_watch in ended:
            self._nodes_watch = self._new_watch([view.NODES], reading.revision + 1)
        return reading

    def survey(self) -> Reading:
        return self._reading(*self._fetch(nodes=True))

    def _fetch(self, *, nodes: bool) -> tuple[int, list[etcd.KeyValue]]:
        ranges = [self._range(key) for key in self.scope(nodes=nodes)]
        with translated():
            result = self._client.txn([], [etcd.Get(r) for r in ranges])
        kvs = [kv for r in result.responses if isinstance(r, etcd.GetResult) for kv in r.kvs]
        return result.revision, kvs

    def follow_nodes(self) -> Reading:
        self.unfollow_nodes()
        with translated():
            snapshot = self._client.get_prefix(self._bytes(view.NODES))
        self._nodes_watch = self._new_watch([view.NODES], snapshot.revision + 1)
        return self._reading(snapshot.revision, snapshot.kvs)

    def unfollow_nodes(self) -> None:
        watch, self._nodes_watch = self._nodes_watch, None
        if watch is not None:
            watch.close()
            self._told.dismiss(watch)

    def _follow(self, start_revision: int) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = self._new_watch(self.scope(nodes=False), start_revision)

    def _new_watch(self, keys: tuple[str, ...] | list[str], start_revision: int) -> Watch:
        ranges = [self._range(key) for key in keys]
        with translated():
            return self._client.watch(ranges, into=self._told, start_revision=start_revision)

    @property
    def _told(self) -> EtcdInbox:
        if self._inbox is None:
            raise AssertionError("start() comes first")
        return self._inbox

    def _reading(self, revision: int, kvs: list[etcd.KeyValue] | tuple[etcd.KeyValue, ...]) -> Reading:
        found: dict[str, Seen[Record]] = {}
        unreadable: dict[str, RendezvousStateError] = {}
        for kv in kvs:
            key = text_of(kv.key)[len(self._prefix) :]
            try:
                found[key] = seen_in(key, kv)
            except RendezvousStateError as e:
                unreadable[key] = e
        return Reading(revision, found, unreadable)

    # -- writing ----------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> CommitResult:
        return self._faults.around(commit.step, lambda: self._carry_out(commit))

    def _carry_out(self, commit: Commit) -> CommitResult:
        stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        with translated():
            success: list[etcd.Operation] = [self._operation(o, stamp) for o in commit.operations]
            if commit.claim is not None:
                key = self._bytes(commit.claim.key)
                claim = self._operation(commit.claim, stamp)
                success.append(etcd.Txn((etcd.absent(key),), (claim,), (etcd.Get(key),)))
            try:
                result = self._client.txn([self._compare(g) for g in commit.guards], success)
            except LeaseNotFound:
                self._told.run_lease = 0  # whichever lease it was, neither is worth keeping now
                raise
        if not result.succeeded:
            return CommitResult(succeeded=False)
        facts = self._facts(commit, result.revision)
        claimed = result.responses[-1]
        if commit.claim is not None and isinstance(claimed, etcd.TxnResult):
            # Where what is there is no record, the watch tells.
            with contextlib.suppress(RendezvousStateError):
                facts.append(self._claim_fact(commit.claim, claimed, result.revision))
        return CommitResult(succeeded=True, facts=tuple(facts))

    def _operation(self, operation: Put | Delete, stamp: str) -> etcd.Put | etcd.Delete:
        if isinstance(operation, Delete):
            return etcd.Delete(self._range(operation.key))
        value = encode(operation.record, written_at=stamp)
        return etcd.Put(self._bytes(operation.key), value, self._lease_for(operation.keep))

    def _compare(self, guard: Guard) -> etcd.Compare:
        key = self._bytes(guard.key)
        if isinstance(guard, Absent):
            return etcd.absent(key)
        if isinstance(guard, Unchanged):
            return etcd.modified_at(key, guard.mod_revision)
        return etcd.created_at(key, guard.create_revision)

    def _facts(self, commit: Commit, revision: int) -> list[Fact]:
        """What this node knows of its own write before the watch tells it.

        The creation revision of an existing key is not in etcd's answer, so it stays as it was known.
        """
        created = {g.key for g in commit.guards if isinstance(g, Absent)}
        facts = []
        for o in commit.operations:
            if isinstance(o, Put):
                facts.append(
                    Fact(o.key, revision, Seen(o.record, revision, revision if o.key in created else 0))
                )
            elif not o.key.endswith("/"):
                facts.append(Fact(o.key, revision, None))
        return facts

    def _claim_fact(self, claim: Put, claimed: etcd.TxnResult, revision: int) -> Fact:
        """Who has what was claimed: this node, or the one that the answer tells of."""
        found = claimed.responses[0]
        if not isinstance(found, etcd.GetResult):
            return Fact(claim.key, revision, Seen(claim.record, revision, revision))
        kv = found.kvs[0]
        return Fact(claim.key, kv.mod_revision, seen_in(claim.key, kv))

    # -- leases -----------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        if self._keeper is not None:
            self._keeper.close(revoke=False)
            self._keeper = None
        with translated():
            self._keeper = self._client.keep_lease(
                self._settings.ttl.total_seconds(),
                into=self._told,
                answer_within=self._settings.timeout.heartbeat.total_seconds(),
                renewed=lambda: self._tell(LeaseRenewed()),
            )
        self._told.keeper = self._keeper

    def lease_lives(self) -> bool:
        if self._keeper is None:
            return False
        try:
            with translated():
                self._client.lease_time_to_live(self._keeper.id)
        except LeaseGone:
            return False
        return True

    def drop_lease(self) -> bool:
        if self._keeper is None:
            return True
        keeper, self._keeper = self._keeper, None
        seconds = self._settings.goodbye_seconds
        with translated():
            return keeper.close(revoke=True, timeout=seconds)

    def upkeep(self, *, leads: bool) -> float:
        """The leader keeps the run's lease alive. A lease that has ended is replaced at the next write.

        Every node that was asked to looks for etcd's members.
        """
        period = self._settings.retention.total_seconds() / 3
        if self._settings.find_members:
            period = min(period, _FIND_SECONDS)
            try:
                self._client.sync()
            except EtcdError as e:
                log.info("the members of etcd are not known at present: %s", e)
        if leads and self._told.run_lease:
            with translated():
                if self._client.keep_alive_once(self._told.run_lease) <= 0:
                    self._told.run_lease = 0
        return min(period, 3600.0)

    def _lease_for(self, keep: Keep) -> int:
        if keep is Keep.NODE:
            if self._keeper is None:
                raise LeaseGone("this node holds no lease")
            return self._keeper.id
        if keep is Keep.TERMINAL:
            return self._client.lease_grant(self._settings.terminal_ttl.total_seconds()).id
        if not self._told.run_lease:
            self._told.run_lease = self._client.lease_grant(self._settings.retention.total_seconds()).id
        return self._told.run_lease

    def _note_run_lease(self, kvs: list[etcd.KeyValue]) -> None:
        """The run's lease is the one on which its round hangs."""
        key = self._bytes(view.ROUND)
        for kv in kvs:
            if kv.key == key and kv.lease:
                self._told.run_lease = kv.lease

    # -- the rest ---------------------------------------------------------------------------------

    def store(self, prefix: str) -> EtcdStore:
        return EtcdStore(self._client, self._prefix + prefix, lease=self._told.run_lease)

    def close(self) -> None:
        self._client.close()

    def _bytes(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _range(self, key: str) -> etcd.KeyRange:
        return etcd.prefix(self._bytes(key)) if key.endswith("/") else etcd.key(self._bytes(key))
