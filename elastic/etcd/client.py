"""The etcd v3 client: typed calls with deadlines, and the way to watches and kept leases.

It sits on `calls` (deadlines, retries, failover, authentication) and adds the meaning of each request: what
may be repeated, and what an answer means after a failure whose outcome was unknown. It never blocks without
a bound, keeps no data, and reads no environment. It works only in the process that made it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from elastic.etcd import diagnosis, errors, members, wire
from elastic.etcd import lease as leases
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.calls import Caller, Observer, Repeat
from elastic.etcd.lease import LeaseKeeper
from elastic.etcd.sink import Sink
from elastic.etcd.tls import Tls
from elastic.etcd.values import (
    CasResult,
    Compare,
    Deletion,
    Get,
    GetResult,
    Keys,
    KeyValue,
    Lease,
    LeaseInfo,
    Member,
    Operation,
    Put,
    Snapshot,
    Status,
    Txn,
    TxnResult,
    modified_at,
    prefix,
)
from elastic.etcd.watch import Watch
from elastic.utils.endpoints import Endpoint, parse_endpoints

DEFAULT_PORT = 2379


class Client:
    """A connection to one etcd cluster, for any number of threads. Close it, or use it in a `with`.

    `endpoints` are members of one cluster, as Endpoint or text; they are used one at a time, another one when
    the one in use does not answer. TLS is used if an endpoint says https or `tls` is given. `timeout` is what
    a call may take in all, `attempt_timeout` what one endpoint is given to answer, both in seconds.

    Nothing is connected until the first call, which also starts the one thread that carries everything; while
    nothing happens it sleeps. Every call takes `timeout` (None: the client's) and returns or
    raises EtcdError within it. Raises ValueError for endpoints or TLS files that cannot be right.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint | str],
        *,
        tls: Tls | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout: float = 10.0,
        attempt_timeout: float = 2.0,
    ) -> None:
        if password is not None and user is None:
            raise ValueError("an etcd password needs a user name")
        if timeout <= 0 or attempt_timeout <= 0:
            raise ValueError(
                f"timeouts must be positive: timeout={timeout}, attempt_timeout={attempt_timeout}"
            )
        self.endpoints = _resolve(endpoints, tls=tls)
        self._tls = tls
        self._caller = Caller(
            self.endpoints,
            tls=tls,
            user=user,
            password=password,
            timeout=timeout,
            attempt_timeout=attempt_timeout,
        )
        self._lock = threading.Lock()
        self._owned: set[Watch | LeaseKeeper] = set()

    def observe(self, observer: Observer) -> None:
        """Have `observer` told of each call that is over: method, seconds, and whether it failed.

        It is called in the client's thread, and must not block.
        """
        self._caller.observer = observer

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every watch, stops keeping leases (without revoking them), ends every call. Idempotent.

        In a forked child it only marks the client: the connections belong to the parent.
        """
        # That ends whatever runs; closing the owners then only marks them.
        self._caller.close()
        if self._caller.forked:
            return  # the lock may have been held at the fork
        with self._lock:
            owned = list(self._owned)
        for each in owned:
            if isinstance(each, LeaseKeeper):
                each.close(revoke=False)
            else:
                each.close()

    # Keys

    def get(
        self, name: bytes, *, revision: int = 0, serializable: bool = False, timeout: float | None = None
    ) -> KeyValue | None:
        """The key now, or at a past `revision`; None if it does not exist.

        `serializable` reads what the member has, which may be old, even without a leader. Raises Compacted
        if that revision is gone.
        """
        snapshot = self.get_range(name, revision=revision, serializable=serializable, timeout=timeout)
        return snapshot.kvs[0] if snapshot.kvs else None

    def get_prefix(
        self,
        name: bytes,
        *,
        revision: int = 0,
        limit: int = 0,
        serializable: bool = False,
        keys_only: bool = False,
        timeout: float | None = None,
    ) -> Snapshot:
        """Every key that begins with `name`, in key order, as of one revision. Options as for `get_range`."""
        return self.get_range(
            prefix(name),
            revision=revision,
            limit=limit,
            serializable=serializable,
            keys_only=keys_only,
            timeout=timeout,
        )

    def get_range(
        self,
        keys: Keys,
        *,
        revision: int = 0,
        limit: int = 0,
        serializable: bool = False,
        keys_only: bool = False,
        timeout: float | None = None,
    ) -> Snapshot:
        """The keys of a range as of one revision (0: now); at most `limit` of them (0: all)."""
        request = wire.range_request(
            keys, revision=revision, limit=limit, serializable=serializable, keys_only=keys_only
        )
        response = self._caller.call(
            wire.RANGE, request, repeat=Repeat.READ, timeout=timeout, require_leader=not serializable
        )
        return wire.snapshot(response)

    def put(
        self, name: bytes, value: bytes, *, lease: int = 0, repeat: bool = True, timeout: float | None = None
    ) -> int:
        """Writes the key and returns the revision of the write. Raises LeaseNotFound if the lease is gone.

        A put whose outcome is unknown is sent again. The lost one may still be carried out, and a member that
        was frozen carries it out when it wakes: watchers may see the value twice, and a key that was written
        again meanwhile may go back to the older value. Where that matters, put under a condition on the key's
        `mod_revision` (`compare_and_set`, or `txn` with `modified_at`), which a late duplicate fails.
        `repeat=False` sends a put once, and raises with `applied` "maybe" if its outcome is unknown.
        """
        request = wire.put_request(Put(name, value, lease))
        kind = Repeat.SAFE if repeat else Repeat.ONCE
        return self._caller.call(wire.PUT, request, repeat=kind, timeout=timeout).header.revision

    def delete(self, name: bytes, *, timeout: float | None = None) -> Deletion:
        """Deletes the key, if it exists. After a repeated attempt `deleted` counts only the last one's."""
        return self.delete_range(name, timeout=timeout)

    def delete_prefix(self, name: bytes, *, timeout: float | None = None) -> Deletion:
        """Deletes every key that begins with `name`."""
        return self.delete_range(prefix(name), timeout=timeout)

    def delete_range(self, keys: Keys, *, timeout: float | None = None) -> Deletion:
        """Deletes every key of a range."""
        response = self._caller.call(
            wire.DELETE_RANGE, wire.delete_request(keys), repeat=Repeat.SAFE, timeout=timeout
        )
        return Deletion(response.header.revision, response.deleted)

    def txn(
        self,
        compare: Sequence[Compare],
        success: Sequence[Operation],
        failure: Sequence[Operation] = (),
        *,
        repeat: bool = False,
        timeout: float | None = None,
    ) -> TxnResult:
        """Runs `success` if every compare holds, else `failure`, atomically.

        A transaction that writes is sent again only if it has certainly not been applied; if that is not
        known it raises, with `applied` "maybe", and the caller must read back. `repeat=True` says that doing
        it twice is as good as once. Raises TooManyOps beyond the server's limit (128 of each list).
        """
        txn = Txn(tuple(compare), tuple(success), tuple(failure))
        writing = Repeat.SAFE if repeat else Repeat.ONCE
        kind = Repeat.READ if wire.read_only([txn]) else writing
        return wire.txn_result(
            self._caller.call(wire.TXN, wire.txn_request(txn), repeat=kind, timeout=timeout)
        )

    def compare_and_set(
        self,
        name: bytes,
        value: bytes,
        *,
        expected: int,
        lease: int = 0,
        timeout: float | None = None,
    ) -> CasResult:
        """Writes the key if it was last modified at revision `expected` (0: if it does not exist).

        The value must be one that no other writer writes (hold an owner's id, say): that is how the answer
        is right also after a failure whose outcome was unknown. The request is repeated then, which its own
        condition makes safe, and finding our own value in place of the expected one means that it had been
        applied. Raises Unavailable with `applied` "maybe" only if the time ran out first.
        """
        txn = Txn((modified_at(name, expected),), (Put(name, value, lease), Get(name)), (Get(name),))
        response = self._caller.call(wire.TXN, wire.txn_request(txn), repeat=Repeat.SAFE, timeout=timeout)
        result = wire.txn_result(response)
        found = result.responses[-1]
        current = found.kvs[0] if isinstance(found, GetResult) and found.kvs else None
        if result.succeeded or current is None:
            return CasResult(result.succeeded, result.revision, current)
        ours = current.value == value and current.mod_revision > expected
        return CasResult(ours, current.mod_revision if ours else result.revision, current)

    def compact(self, revision: int, *, timeout: float | None = None) -> None:
        """Forgets the history before `revision`; nothing to do if that has happened already."""
        try:
            self._caller.call(
                wire.COMPACT, pb.CompactionRequest(revision=revision), repeat=Repeat.SAFE, timeout=timeout
            )
        except errors.Compacted:
            return

    # Leases

    def lease_grant(self, ttl: float, *, lease_id: int | None = None, timeout: float | None = None) -> Lease:
        """A new lease of `ttl` seconds, rounded up to whole ones; the server may give more.

        The id is chosen here, at random unless given, so that a grant that was repeated because its outcome
        was unknown finds its own lease and not a second one. With a given id that is in use already the
        lease is returned as it is.
        """
        return leases.grant(self._caller, ttl, lease_id=lease_id, timeout=timeout)

    def lease_revoke(self, lease_id: int, *, timeout: float | None = None) -> None:
        """Ends the lease and deletes its keys; nothing to do if it has ended already."""
        leases.revoke(self._caller, lease_id, timeout=timeout)

    def lease_time_to_live(self, lease_id: int, *, timeout: float | None = None) -> LeaseInfo:
        """What is left of the lease, in seconds, and its keys. Raises LeaseNotFound if it has ended."""
        response = self._caller.call(
            wire.LEASE_TIME_TO_LIVE,
            pb.LeaseTimeToLiveRequest(ID=lease_id, keys=True),
            repeat=Repeat.READ,
            timeout=timeout,
        )
        if response.TTL < 0:
            raise errors.LeaseNotFound(f"lease {lease_id:x} has expired or was revoked")
        return LeaseInfo(response.ID, response.TTL, response.grantedTTL, tuple(response.keys))

    def keep_alive_once(self, lease_id: int, *, timeout: float | None = None) -> int:
        """Renews the lease and returns its time to live in seconds; 0 if the lease has ended."""
        return leases.renew(self._caller, lease_id, timeout=timeout)

    def keep_lease(
        self,
        ttl: float,
        *,
        into: Sink,
        answer_within: float | None = None,
        renewed: Callable[[], None] = lambda: None,
        timeout: float | None = None,
    ) -> LeaseKeeper:
        """A new lease, kept alive until it is closed or lost; `into` then gets one LeaseLost.

        A keep-alive that has no answer in `answer_within` seconds, at most the client's attempt timeout, is
        sent again, to another endpoint if there is one. `renewed` is called, in the client's thread, after
        each keep-alive that etcd has confirmed.

        Raises Unavailable if no lease could be had within `timeout` or within `ttl`, whichever is less.
        """
        started = time.monotonic()
        limit = min(self._caller.default_timeout if timeout is None else timeout, ttl)
        lease = self.lease_grant(ttl, timeout=limit)
        longest = self._caller.attempt_timeout
        keeper = LeaseKeeper(
            self._caller,
            lease,
            granted_at=started,
            answer_within=longest if answer_within is None else min(answer_within, longest),
            into=into,
            renewed=renewed,
            forget=self._forget,
        )
        self._adopt(keeper)
        return keeper

    # Watches

    def watch(self, ranges: Sequence[Keys], *, into: Sink, start_revision: int = 0) -> Watch:
        """Watches several keys or ranges over one stream; what happens goes to `into`, see `Watch`.

        Events from `start_revision` on are delivered, so a read's `revision + 1` continues that read without
        a gap. 0 is from now, which is some moment after this call.
        """
        self._caller.require_usable()
        watch = Watch(self._caller, ranges, into=into, start_revision=start_revision, forget=self._forget)
        self._adopt(watch)
        return watch

    # The cluster

    def status(self, *, timeout: float | None = None) -> Status:
        """What the member in use says of itself. Needs no leader and no authentication."""
        asked = self._caller.ask(
            wire.STATUS, pb.StatusRequest(), repeat=Repeat.READ, timeout=timeout, require_leader=False
        )
        answer = self._caller.run(asked, timeout=timeout)
        return wire.status(answer.response, endpoint=str(answer.endpoint))

    def member_list(self, *, timeout: float | None = None) -> tuple[Member, ...]:
        """The members of the cluster."""
        response = self._caller.call(
            wire.MEMBER_LIST, pb.MemberListRequest(linearizable=True), repeat=Repeat.READ, timeout=timeout
        )
        return tuple(map(wire.member, response.members))

    def sync(self, *, timeout: float | None = None) -> tuple[Endpoint, ...]:
        """Takes the members that no endpoint names in as a reserve; returns every endpoint in use then.

        They are used only while none of the endpoints given is in good standing, and stay until `close`. An
        address that does not answer at once as the member that claims it is left out, until the next call.
        Raises as `member_list` does; what was in use stays in use.
        """
        secure = self._tls is not None or self.endpoints[0].secure
        seconds = self._caller.default_timeout if timeout is None else timeout
        found = members.sync(self._caller, self.endpoints, secure=secure, timeout=seconds)
        self._caller.run(found, timeout=seconds)
        return tuple(line.endpoint for line in self._caller.pool.lines())

    def check(self, *, timeout: float | None = None, keys: Keys | None = None) -> None:
        """Proves that the endpoints are a usable etcd, or raises the one error that says why they are not.

        It reads consistently, which needs a leader and a quorum. With `keys` it reads those, so that a
        missing permission shows; without, a refused read still proves that the user is known. What may pass
        (nothing listens yet, no quorum) is tried again until the timeout; what cannot (not an etcd, wrong
        password, other TLS) is raised at once. The look at what listens there may add a second, and the
        system's own time for resolving a name.
        """
        diagnosis.check(self._caller, self.endpoints, tls=self._tls, timeout=timeout, keys=keys)

    def _adopt(self, owned: Watch | LeaseKeeper) -> None:
        with self._lock:
            if not self._caller.closed.is_set():
                self._owned.add(owned)
                return
        owned.close()
        raise errors.ClientClosed("the etcd client is closed")

    def _forget(self, owned: Watch | LeaseKeeper) -> None:
        with self._lock:
            self._owned.discard(owned)


def _resolve(endpoints: Sequence[Endpoint | str], *, tls: Tls | None) -> tuple[Endpoint, ...]:
    if isinstance(endpoints, str):
        raise TypeError(f"endpoints must be a sequence, not the text {endpoints!r}: use parse_endpoints")
    found: list[Endpoint] = []
    for each in endpoints:
        found.extend(parse_endpoints(each, default_port=DEFAULT_PORT) if isinstance(each, str) else [each])
    if not found:
        raise ValueError("no etcd endpoint given: expected at least one host:port")
    schemes = {endpoint.secure for endpoint in found if endpoint.scheme != "etcd"}
    if len(schemes) > 1:
        raise ValueError("the etcd endpoints mix http and https: the members of one cluster use one of them")
    if tls is not None and False in schemes:
        raise ValueError("TLS files are given, but the etcd endpoints say http: write https")
    # A scheme said once holds for the cluster: "https://a:2379,b:2379" means TLS for both.
    if True in schemes:
        found = [Endpoint("https", endpoint.host, endpoint.port) for endpoint in found]
    return tuple(dict.fromkeys(found))
