"""The rendezvous on etcd v3: the records are keys, guards are compares, liveness is a lease.

Translates between the protocol's words and `elastic.etcd`; decides nothing. Keys of one run lie under
``<etcd_prefix>/<run_id>/``. Three kinds of lease:

- this node's own, kept alive while the agent lives; its record and its leadership hang on it;
- the run's, of `retention` seconds: the round, the history and the agents' store hang on it. It is named
  by the ``round`` key, so every leader keeps the same one alive;
- the terminal record's own, of `terminal_ttl` seconds, which nobody keeps alive.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from elastic import etcd
from elastic.etcd import (
    Client,
    Compacted,
    EtcdError,
    HistoryLost,
    LeaseKeeper,
    LeaseLost,
    LeaseNotFound,
    Tls,
    Unavailable,
    Watch,
    WatchBatch,
    WatchEnded,
    WatchInterrupted,
    WatchResumed,
)
from elastic.rendezvous.api import RendezvousParameters
from elastic.rendezvous.codec import decode, encode, kind_of
from elastic.rendezvous.core import view
from elastic.rendezvous.core.actions import Absent, Commit, Delete, Guard, Keep, Put, Unchanged
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import Fact, Seen
from elastic.rendezvous.dynamic import DynamicRendezvousHandler
from elastic.rendezvous.errors import RendezvousConnectionError, RendezvousStateError
from elastic.rendezvous.settings import RendezvousSettings, setting
from elastic.store.etcd import EtcdStore
from elastic.utils.endpoints import parse_endpoints
from elastic.utils.network import address_towards

from .api import (
    BackendRefused,
    BackendUnavailable,
    BackendWiped,
    CommitResult,
    Inbox,
    Interrupted,
    Learned,
    LeaseEnded,
    LeaseGone,
    MembershipBackend,
    Missed,
    News,
    Reading,
    Resumed,
    Unreadable,
)
from .faults import VARIABLE, FaultPoints

_ClientItem = WatchBatch | WatchInterrupted | WatchResumed | WatchEnded | LeaseLost

NAME = "etcd"
DEFAULT_PREFIX = "/elastic"

_GOODBYE_SECONDS = 5.0
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
        self._own_key = view.node_key(node_id)
        self._inbox: _Inbox | None = None
        self._watch: Watch | None = None
        self._nodes_watch: Watch | None = None
        self._keeper: LeaseKeeper | None = None
        self._run_lease = 0

    @property
    def name(self) -> str:
        return NAME

    # -- reading ----------------------------------------------------------------------------------

    def start(self, inbox: Inbox) -> Reading:
        self._inbox = _Inbox(inbox, self._prefix)
        reading = self.read(nodes=False)
        self._follow(reading.revision + 1)
        return reading

    def scope(self, *, nodes: bool) -> tuple[str, ...]:
        return (view.ROUND, view.CLOSED, view.LEADER, view.NODES if nodes else self._own_key)

    def read(self, *, nodes: bool) -> Reading:
        revision, kvs = self._fetch(nodes=nodes)
        self._note_run_lease(kvs)
        reading = self._reading(revision, kvs)
        ended = set() if self._inbox is None else self._inbox.ended
        if self._watch in ended:
            self._follow(reading.revision + 1)
        if self._nodes_watch in ended:
            self._nodes_watch = self._new_watch([view.NODES], reading.revision + 1)
        return reading

    def survey(self) -> Reading:
        return self._reading(*self._fetch(nodes=True))

    def _fetch(self, *, nodes: bool) -> tuple[int, list[etcd.KeyValue]]:
        ranges = [self._range(key) for key in self.scope(nodes=nodes)]
        with _translated():
            result = self._client.txn([], [etcd.Get(r) for r in ranges])
        kvs = [kv for r in result.responses if isinstance(r, etcd.GetResult) for kv in r.kvs]
        return result.revision, kvs

    def follow_nodes(self) -> Reading:
        self.unfollow_nodes()
        with _translated():
            snapshot = self._client.get_prefix(self._bytes(view.NODES))
        self._nodes_watch = self._new_watch([view.NODES], snapshot.revision + 1)
        return self._reading(snapshot.revision, snapshot.kvs)

    def unfollow_nodes(self) -> None:
        watch, self._nodes_watch = self._nodes_watch, None
        if watch is not None:
            watch.close()
            if self._inbox is not None:
                self._inbox.dismiss(watch)

    def _follow(self, start_revision: int) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = self._new_watch(self.scope(nodes=False), start_revision)

    def _new_watch(self, keys: tuple[str, ...] | list[str], start_revision: int) -> Watch:
        if self._inbox is None:
            raise AssertionError("start() comes first")
        ranges = [self._range(key) for key in keys]
        with _translated():
            return self._client.watch(ranges, into=self._inbox, start_revision=start_revision)

    def _reading(self, revision: int, kvs: list[etcd.KeyValue] | tuple[etcd.KeyValue, ...]) -> Reading:
        found: dict[str, Seen[Record]] = {}
        unreadable: dict[str, RendezvousStateError] = {}
        for kv in kvs:
            key = _text(kv.key)[len(self._prefix) :]
            try:
                found[key] = _seen(key, kv)
            except RendezvousStateError as e:
                unreadable[key] = e
        return Reading(revision, found, unreadable)

    # -- writing ----------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> CommitResult:
        return self._faults.around(commit.step, lambda: self._carry_out(commit))

    def _carry_out(self, commit: Commit) -> CommitResult:
        stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        with _translated():
            success: list[etcd.Operation] = [self._operation(o, stamp) for o in commit.operations]
            if commit.claim is not None:
                key = self._bytes(commit.claim.key)
                claim = self._operation(commit.claim, stamp)
                success.append(etcd.Txn((etcd.absent(key),), (claim,), (etcd.Get(key),)))
            try:
                result = self._client.txn([self._compare(g) for g in commit.guards], success)
            except LeaseNotFound:
                self._run_lease = 0  # whichever lease it was, neither is worth keeping now
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
        return Fact(claim.key, kv.mod_revision, _seen(claim.key, kv))

    # -- leases -----------------------------------------------------------------------------------

    def hold_lease(self) -> None:
        if self._inbox is None:
            raise AssertionError("start() comes first")
        if self._keeper is not None:
            self._keeper.close(revoke=False)
            self._keeper = None
        with _translated():
            self._keeper = self._client.keep_lease(self._settings.ttl.total_seconds(), into=self._inbox)

    def lease_lives(self) -> bool:
        if self._keeper is None:
            return False
        try:
            with _translated():
                self._client.lease_time_to_live(self._keeper.id)
        except LeaseGone:
            return False
        return True

    def drop_lease(self) -> bool:
        if self._keeper is None:
            return True
        keeper, self._keeper = self._keeper, None
        seconds = min(self._settings.timeout.close.total_seconds(), _GOODBYE_SECONDS)
        with _translated():
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
        if leads and self._run_lease:
            with _translated():
                if self._client.keep_alive_once(self._run_lease) <= 0:
                    self._run_lease = 0
        return min(period, 3600.0)

    def _lease_for(self, keep: Keep) -> int:
        if keep is Keep.NODE:
            if self._keeper is None:
                raise LeaseGone("this node holds no lease")
            return self._keeper.id
        if keep is Keep.TERMINAL:
            return self._client.lease_grant(self._settings.terminal_ttl.total_seconds()).id
        if not self._run_lease:
            self._run_lease = self._client.lease_grant(self._settings.retention.total_seconds()).id
        return self._run_lease

    def _note_run_lease(self, kvs: list[etcd.KeyValue]) -> None:
        """The run's lease is the one on which its round hangs."""
        key = self._bytes(view.ROUND)
        for kv in kvs:
            if kv.key == key and kv.lease:
                self._run_lease = kv.lease

    # -- the rest ---------------------------------------------------------------------------------

    def store(self, prefix: str) -> EtcdStore:
        return EtcdStore(self._client, self._prefix + prefix, lease=self._run_lease)

    def close(self) -> None:
        self._client.close()

    def _bytes(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _range(self, key: str) -> etcd.KeyRange:
        return etcd.prefix(self._bytes(key)) if key.endswith("/") else etcd.key(self._bytes(key))


class _Inbox:
    """Puts what etcd's client tells into the shell's inbox, in the protocol's words.

    Each watch puts from a thread of its own. News is interrupted while any watch is: where one that is
    given up was the last of these, nobody else would say that it comes again.
    """

    def __init__(self, inbox: Inbox, prefix: str) -> None:
        self._inbox = inbox
        self._prefix = prefix
        self.ended: set[Watch] = set()
        self._lock = threading.Lock()
        self._interrupted: set[Watch] = set()

    def dismiss(self, watch: Watch) -> None:
        """It has been closed, and tells nothing any more."""
        with self._lock:
            if watch in self._interrupted:
                self._resumed(watch)

    def put(self, item: _ClientItem, /) -> None:
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
        return [LeaseEnded(item.reason, silent=item.silent)]

    def _changes(self, batch: WatchBatch) -> list[News]:
        facts: list[Fact] = []
        news: list[News] = []
        for event in batch.events:
            key = _text(event.kv.key)[len(self._prefix) :]
            try:
                seen = None if event.deleted else _seen(key, event.kv)
                facts.append(Fact(key, event.kv.mod_revision, seen))
            except RendezvousStateError as e:
                news.append(Unreadable(key, e))
        return [*news, Learned(tuple(facts))] if facts else news


class _translated:  # noqa: N801 - reads as a statement: `with _translated():`
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


def _text(key: bytes) -> str:
    return key.decode(errors="surrogateescape")


def _seen(key: str, kv: etcd.KeyValue) -> Seen[Record]:
    kind = kind_of(key)
    if kind is None:
        raise AssertionError(f"{key} is not a record's key")
    return Seen(decode(key, kv.value, kind), kv.mod_revision, kv.create_revision)


def create_handler(params: RendezvousParameters) -> DynamicRendezvousHandler:
    """A handler on etcd, proven to be usable.

    Raises ValueError for wrong settings and RendezvousConnectionError where etcd cannot be used; the
    sentence says why. Reads ELASTIC_ETCD_USER and ELASTIC_ETCD_PASSWORD where the settings name no user.
    """
    return connect(params, os.environ)


def connect(params: RendezvousParameters, env: Mapping[str, str]) -> DynamicRendezvousHandler:
    """As `create_handler`, with the environment given."""
    settings = RendezvousSettings.from_params(params)
    faults = FaultPoints(env.get(VARIABLE, ""))
    client, prefix = open_run(params, env, settings=settings)
    try:
        client.check(timeout=settings.connect_timeout.total_seconds(), keys=etcd.prefix(prefix.encode()))
        address = params.local_addr or _own_address(client)
    except (EtcdError, OSError) as e:
        client.close()
        raise RendezvousConnectionError(str(e)) from e
    return DynamicRendezvousHandler(
        settings,
        lambda node_id: EtcdMembership(
            client, prefix=prefix, node_id=node_id, settings=settings, faults=faults
        ),
        address=address,
    )


def read_run(params: RendezvousParameters, env: Mapping[str, str]) -> view.View:
    """All records of a run, read once, without taking part in it.

    Raises ValueError for wrong settings, EtcdError where etcd cannot be used, and RendezvousStateError
    for the first record that cannot be read.
    """
    settings = RendezvousSettings.from_params(params)
    client, prefix = open_run(params, env, settings=settings)
    with client:
        client.check(timeout=settings.connect_timeout.total_seconds())
        snapshot = client.get_prefix(prefix.encode())
    records = {_text(kv.key)[len(prefix) :]: kv for kv in snapshot.kvs}
    found = {key: _seen(key, kv) for key, kv in records.items() if kind_of(key) is not None}
    return view.View().read(snapshot.revision, (), found)


def open_run(
    params: RendezvousParameters, env: Mapping[str, str], *, settings: RendezvousSettings
) -> tuple[Client, str]:
    """A client for the endpoint that `params` names, not connected yet, and the prefix of the run's keys."""
    endpoints = parse_endpoints(params.endpoint, default_port=etcd.DEFAULT_PORT)
    protocol = setting(params, "protocol")
    if protocol not in ("", "http", "https"):
        raise ValueError(f"rendezvous setting protocol={protocol!r} is neither http nor https")
    if protocol == "https":
        endpoints = tuple(type(e)("https", e.host, e.port) for e in endpoints)
    ca, cert, key = (_path(setting(params, name)) for name in ("ca_cert", "ssl_cert", "ssl_cert_key"))
    tls = Tls(ca=ca, cert=cert, key=key) if ca or cert or key else None
    user = setting(params, "user") or env.get("ELASTIC_ETCD_USER") or None
    password = env.get("ELASTIC_ETCD_PASSWORD") or None
    password_file = setting(params, "password_file")
    if password_file:
        try:
            password = Path(password_file).read_text().rstrip("\n")
        except OSError as e:
            raise ValueError(f"cannot read password_file {password_file!r}: {e.strerror or e}") from e
    client = Client(
        endpoints,
        tls=tls,
        user=user,
        password=password if user else None,
        timeout=settings.read_timeout.total_seconds(),
    )
    root = "/" + (setting(params, "etcd_prefix") or DEFAULT_PREFIX).strip("/")
    return client, f"{root}/{settings.run_id}/"


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _own_address(client: Client) -> str:
    """The address from which this machine reaches etcd, which other nodes can be expected to reach too."""
    endpoint = client.endpoints[0]
    return address_towards(endpoint.host, endpoint.port)
