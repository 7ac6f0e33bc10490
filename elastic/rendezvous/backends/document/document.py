"""All records of one run as one value: the document, and what may be done with it.

Pure: a transaction, a heartbeat or the end of a lease makes a new document of an old one; who holds it,
writes it with compare-and-set (:mod:`.membership`). It keeps etcd's promises as far as the protocol
needs them: revisions that only grow, guarded transactions, keys that go with a lease, and the recent changes.

``history`` is drawn at random with the first document: another one means that the data was lost. A lease is
a counter that its owner raises; whoever sees it stand still for long enough may end it. It holds no clock.
``past`` are the newest values of ``closed`` and of nodes that are no more, so that who looks only now and
then misses none: a node may say that it leaves and go at once. Of the rounds' history a few are kept.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastic.rendezvous.core.actions import Absent, Commit, Delete, Guard, Keep, Put, Unchanged
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import CLOSED, HISTORY, NODES

MOST_PAST = 32
MOST_HISTORY = 4


class Refusal(enum.Enum):
    """Why a transaction is not carried out."""

    GUARD = "a guard does not hold"
    LEASE = "the lease of a key to be written has ended"


@dataclass(frozen=True, slots=True)
class Stored:
    """The value of a key (a record, as JSON has it), and the revisions that wrote and created it.

    `lease` is the one whose end deletes it; "" for none.
    """

    value: Any
    modified: int
    created: int
    lease: str = ""


@dataclass(frozen=True, slots=True)
class Past:
    """A value that a key had until a revision, which overwrote or deleted it."""

    key: str
    stored: Stored
    until: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key was given a value at a revision, or deleted (None)."""

    key: str
    revision: int
    stored: Stored | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The state of one run. Make the first one with its `history` alone."""

    history: str
    revision: int = 1
    records: Mapping[str, Stored] = field(default_factory=dict)
    leases: Mapping[str, int] = field(default_factory=dict)
    past: tuple[Past, ...] = ()

    # -- leases -----------------------------------------------------------------------------------

    def granted(self, lease: str) -> Document:
        """With that lease, if it is not there already."""
        return self if lease in self.leases else replace(self, leases={**self.leases, lease: 0})

    def renewed(self, lease: str) -> Document | None:
        """With the lease's counter raised; None where it has ended."""
        beats = self.leases.get(lease)
        return None if beats is None else replace(self, leases={**self.leases, lease: beats + 1})

    def expired(self, stale: Mapping[str, int]) -> Document:
        """Without those leases whose counters are still the given ones, and without their keys."""
        return self._without_leases({k for k, beats in stale.items() if self.leases.get(k) == beats})

    def revoked(self, lease: str) -> Document:
        """Without that lease and its keys."""
        return self._without_leases({lease} & self.leases.keys())

    def _without_leases(self, ended: set[str]) -> Document:
        if not ended:
            return self
        leases = {lease: beats for lease, beats in self.leases.items() if lease not in ended}
        gone = [key for key, stored in self.records.items() if stored.lease in ended]
        if not gone:
            return replace(self, leases=leases)
        edit = _Edit(self)
        for key in gone:
            edit.delete(key)
        return replace(edit.finished(), leases=leases)

    def touched(self) -> Document:
        """The next revision, in which nothing else is new: for whoever waits for another document."""
        return replace(self, revision=self.revision + 1)

    # -- transactions -----------------------------------------------------------------------------

    def applied(self, commit: Commit, *, lease: str, value_of: Callable[[Record], Any]) -> Document | Refusal:
        """After that transaction, by the holder of that lease; `value_of` says how JSON has a record."""
        puts = [o for o in (*commit.operations, commit.claim) if isinstance(o, Put)]
        if any(put.keep is Keep.NODE for put in puts) and lease not in self.leases:
            return Refusal.LEASE
        if not all(self._holds(guard) for guard in commit.guards):
            return Refusal.GUARD
        edit = _Edit(self)
        for operation in commit.operations:
            if isinstance(operation, Delete):
                for key in [key for key in edit.records if _covers(operation.key, key)]:
                    edit.delete(key)
            else:
                edit.put(operation, lease, value_of)
        if commit.claim is not None and commit.claim.key not in edit.records:
            edit.put(commit.claim, lease, value_of)
        return edit.finished()

    def _holds(self, guard: Guard) -> bool:
        stored = self.records.get(guard.key)
        if isinstance(guard, Absent):
            return stored is None
        if isinstance(guard, Unchanged):
            return stored is not None and stored.modified == guard.mod_revision
        return (0 if stored is None else stored.created) == guard.create_revision

    # -- what has changed -------------------------------------------------------------------------

    def changes_since(self, known: Document) -> list[KeyChange]:
        """What happened after an earlier document of the same history, in order.

        Of a key that changed more often than the document remembers, only the later values.
        """
        since = known.revision
        changes = [KeyChange(key, s.modified, s) for key, s in self.records.items() if s.modified > since]
        told: set[str] = set()
        for past in self.past:
            if past.stored.modified > since:
                changes.append(KeyChange(past.key, past.stored.modified, past.stored))
            if past.deleted and past.until > since:
                changes.append(KeyChange(past.key, past.until, None))
                told.add(past.key)
        gone = known.records.keys() - self.records.keys() - told
        changes += [KeyChange(key, self.revision, None) for key in sorted(gone)]
        return sorted(changes, key=lambda change: (change.revision, change.key))


class _Edit:
    """The next revision of a document, in the making."""

    def __init__(self, before: Document) -> None:
        self._before = before
        self.revision = before.revision + 1
        self.records = dict(before.records)
        self._past = list(before.past)

    def put(self, put: Put, lease: str, value_of: Callable[[Record], Any]) -> None:
        known = self.records.get(put.key)
        if known is not None:
            self._remember(put.key, known, deleted=False)
        self.records[put.key] = Stored(
            value_of(put.record),
            self.revision,
            self.revision if known is None else known.created,
            lease if put.keep is Keep.NODE else "",
        )
        for key in sorted(key for key in self.records if key.startswith(HISTORY))[:-MOST_HISTORY]:
            del self.records[key]

    def delete(self, key: str) -> None:
        self._remember(key, self.records.pop(key), deleted=True)

    def _remember(self, key: str, stored: Stored, *, deleted: bool) -> None:
        # Of the other keys only the latest value matters; and nobody has seen one of this very revision.
        if (key.startswith(NODES) or key == CLOSED) and stored.modified < self.revision:
            self._past.append(Past(key, stored, self.revision, deleted))

    def finished(self) -> Document:
        return replace(
            self._before, revision=self.revision, records=self.records, past=tuple(self._past[-MOST_PAST:])
        )


def _covers(scope: str, key: str) -> bool:
    return key.startswith(scope) if scope.endswith("/") else key == scope
