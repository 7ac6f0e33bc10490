"""A simulated etcd, as far as the membership protocol uses one.

Revisions, create and mod revisions, guarded transactions with a claim, leases on simulated time, and
a log of events that watchers read at their own pace. It is slow, obvious and deterministic; it has
no clock of its own (the simulated world tells it the time) and never drops or reorders the events of one key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from elastic.rendezvous.core.actions import Absent, Commit, Guard, Keep, Put, SameCreation, Unchanged
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import Fact, Seen


class LeaseGone(Exception):
    """The lease that a transaction or a keep-alive names does not exist."""


@dataclass(slots=True)
class Stored:
    """A key's value. `lease` is the id of the lease that deletes it; None for none."""

    seen: Seen[Record]
    lease: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a transaction: its revision, and what it wrote, if its guards held."""

    succeeded: bool
    revision: int
    wrote: tuple[Fact, ...] = ()


def in_scope(key: str, scope: Iterable[str]) -> bool:
    """Whether a key is one of `scope`, or lies under one of its prefixes (which end in "/")."""
    return any(key == s or (s.endswith("/") and key.startswith(s)) for s in scope)


@dataclass(slots=True)
class FakeEtcd:
    """The store. `written` is called with each change, in the order of revisions."""

    written: Callable[[Fact, str], None]
    revision: int = 1
    history: int = 0
    data: dict[str, Stored] = field(default_factory=dict)
    leases: dict[int, float] = field(default_factory=dict)
    log: list[Fact] = field(default_factory=list)
    _last_lease: int = 0

    def get(self, key: str) -> Record | None:
        stored = self.data.get(key)
        return None if stored is None else stored.seen.record

    # -- leases -----------------------------------------------------------------------------------

    def grant(self, deadline: float) -> int:
        self._last_lease += 1
        self.leases[self._last_lease] = deadline
        return self._last_lease

    def keep_alive(self, lease: int, deadline: float) -> None:
        """Raises `LeaseGone` where there is nothing to keep alive."""
        if lease not in self.leases:
            raise LeaseGone
        self.leases[lease] = deadline

    def revoke(self, lease: int, why: str = "revoked") -> None:
        """Ends a lease, and its keys with it. An unknown lease is ended already."""
        self.revoke_all({lease}, why)

    def revoke_all(self, leases: Collection[int], why: str) -> None:
        """Ends leases at once, and their keys with them."""
        for lease in leases:
            self.leases.pop(lease, None)
        gone = sorted(key for key, stored in self.data.items() if stored.lease in leases)
        if gone:
            self.revision += 1
        for key in gone:
            self._delete(key, why)

    def expire(self, now: float) -> None:
        """Ends the leases whose time has come."""
        for lease, deadline in list(self.leases.items()):
            if deadline <= now:
                self.revoke(lease, "expired")

    # -- keys -------------------------------------------------------------------------------------

    def read(self, scope: Iterable[str]) -> tuple[int, dict[str, Seen[Record]]]:
        """All keys in `scope` at the present revision."""
        wanted = tuple(scope)
        return self.revision, {k: s.seen for k, s in self.data.items() if in_scope(k, wanted)}

    def commit(self, commit: Commit, lease: int | None) -> Answer:
        """One transaction, under the lease of the node that asks. Where that is gone: `LeaseGone`."""
        puts = [o for o in (*commit.operations, commit.claim) if isinstance(o, Put)]
        if any(put.keep is Keep.NODE for put in puts) and lease not in self.leases:
            raise LeaseGone
        if not all(self._holds(guard) for guard in commit.guards):
            return Answer(succeeded=False, revision=self.revision)
        self.revision += 1
        mark = len(self.log)
        for operation in commit.operations:
            if isinstance(operation, Put):
                self._put(operation, lease, commit.step)
            else:
                for key in sorted(k for k in self.data if in_scope(k, (operation.key,))):
                    self._delete(key, commit.step)
        if commit.claim is not None and commit.claim.key not in self.data:
            self._put(commit.claim, lease, "claim")
        return Answer(succeeded=True, revision=self.revision, wrote=tuple(self.log[mark:]))

    def delete(self, key: str, why: str) -> None:
        """An operator deletes one key."""
        if key in self.data:
            self.revision += 1
            self._delete(key, why)

    def wipe(self) -> None:
        """The data directory is lost: no key, no lease, and revisions begin anew. `history` counts this."""
        self.history += 1
        self.revision = 1
        self.data.clear()
        self.leases.clear()
        self.log.clear()

    def _holds(self, guard: Guard) -> bool:
        stored = self.data.get(guard.key)
        if isinstance(guard, Absent):
            return stored is None
        if isinstance(guard, Unchanged):
            return stored is not None and stored.seen.mod_revision == guard.mod_revision
        assert isinstance(guard, SameCreation)
        return (0 if stored is None else stored.seen.create_revision) == guard.create_revision

    def _put(self, put: Put, lease: int | None, why: str) -> None:
        before = self.data.get(put.key)
        created = self.revision if before is None else before.seen.create_revision
        seen: Seen[Record] = Seen(put.record, self.revision, created)
        self.data[put.key] = Stored(seen, lease if put.keep is Keep.NODE else None)
        self._log(Fact(put.key, self.revision, seen), why)

    def _delete(self, key: str, why: str) -> None:
        del self.data[key]
        self._log(Fact(key, self.revision, None), why)

    def _log(self, fact: Fact, why: str) -> None:
        self.log.append(fact)
        self.written(fact, why)
