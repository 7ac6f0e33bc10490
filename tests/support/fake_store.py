"""A simulated key/value store with the document of a run in it, which is held against what it should be.

The store is one value behind compare-and-set. Whoever writes says with which purpose. Each write that is
carried out is taken apart: it may change what its purpose allows and nothing else, it must leave all that
other writers have written, and the records must be those of a simulated etcd that was told the same. No clock
of a node is read here: how long a counter has stood still is known by the time of the world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elastic.rendezvous.backends.document.codec import decode, encode
from elastic.rendezvous.backends.document.document import Document
from elastic.rendezvous.backends.document.news import seen_in
from elastic.rendezvous.core.actions import Commit
from elastic.rendezvous.core.invariants import Violation
from elastic.rendezvous.core.view import HISTORY
from support.fake_etcd import FakeEtcd

OPERATOR = "an operator"

_SLACK = 1e-3


@dataclass(frozen=True, slots=True)
class Grant:
    """A node asks for a lease."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A node, or an operator, ends a lease."""

    lease: str


@dataclass(frozen=True, slots=True)
class Tend:
    """A node raises the counter of its lease, and ends leases whose counters stand still."""


@dataclass(frozen=True, slots=True)
class Begin:
    """There is nothing yet, and a node writes an empty document."""


Purpose = Commit | Grant | Drop | Tend | Begin


@dataclass(slots=True)
class FakeStore:
    """`records` is told what each write comes to; a counter that stands still for `ttl` may be ended.

    Once it is `calm`, with no node to be lost any more, none may. `ahead` is called with what is to be
    written, and may let others write first.
    """

    records: FakeEtcd
    clock: Callable[[], float]
    ttl: float
    value: bytes | None = None
    document: Document | None = None
    conflicts: int = 0
    calm: bool = False
    ahead: Callable[[bytes], None] = lambda _: None
    granted: set[str] = field(default_factory=set)
    _ids: dict[str, int] = field(default_factory=dict)
    _beaten: dict[str, float] = field(default_factory=dict)

    def compare_set(self, writer: str, expected: bytes, desired: bytes, *, purpose: Purpose) -> bytes:
        """As a store does: the value that is there afterwards, or what was expected where there is none."""
        self.ahead(desired)
        if (self.value or b"") != expected:
            self.conflicts += 1
            return expected if self.value is None else self.value
        self._put(writer, desired, purpose)
        return desired

    def edit(self, change: Callable[[Document], Document], *, purpose: Purpose) -> None:
        """An operator changes the document, if there is one."""
        if self.document is not None:
            self._put(OPERATOR, encode(change(self.document)), purpose)

    def wipe(self) -> None:
        """The value is lost."""
        self.value = self.document = None
        self.records.wipe()
        self._ids.clear()
        self._beaten.clear()

    def _put(self, writer: str, state: bytes, purpose: Purpose) -> None:
        before, after = self.document, decode("the key", state)
        self.value, self.document = state, after
        if before is None:
            if after != Document(history=after.history):
                raise Violation(f"{writer} began with a document that is not empty")
            return
        if after.history != before.history:
            raise Violation(f"{writer} has put another run's document in the place of this one's")
        self._check_leases(writer, before, after, purpose)
        self._check_records(writer, before, after, purpose)

    # -- leases -----------------------------------------------------------------------------------

    def _check_leases(self, writer: str, before: Document, after: Document, purpose: Purpose) -> None:
        now = self.clock()
        for lease in sorted(after.leases.keys() - before.leases.keys()):
            if not (isinstance(purpose, Grant) and _owner(lease) == writer):
                raise Violation(f"{writer} brought back the lease {lease}, which had ended")
            self.granted.add(lease)
            self._ids[lease] = self.records.grant(float("inf"))
            self._beaten[lease] = now
        gone = sorted(before.leases.keys() - after.leases.keys())
        for lease in gone:
            self._check_end(writer, lease, purpose)
        for lease in before.leases.keys() & after.leases.keys():
            raised = after.leases[lease] - before.leases[lease]
            if raised:
                if not (isinstance(purpose, Tend) and _owner(lease) == writer and raised == 1):
                    raise Violation(f"{writer} changed the counter of {lease} by {raised}")
                self._beaten[lease] = now
        if gone:
            why = "dropped" if isinstance(purpose, Drop) else "expired"
            self.records.revoke_all({self._ids.pop(lease) for lease in gone}, why)

    def _check_end(self, writer: str, lease: str, purpose: Purpose) -> None:
        if isinstance(purpose, Drop):
            if purpose.lease != lease:
                raise Violation(f"{writer} ended the lease {lease} with {purpose.lease}")
            return
        if not isinstance(purpose, Tend):
            raise Violation(f"{writer} ended the lease {lease} by the way")
        still = self.clock() - self._beaten[lease]
        if still < self.ttl - _SLACK or self.calm:
            raise Violation(f"{writer} ended the lease {lease}, whose owner was heard of {still:.3f} s ago")

    # -- records ----------------------------------------------------------------------------------

    def _check_records(self, writer: str, before: Document, after: Document, purpose: Purpose) -> None:
        if isinstance(purpose, Commit):
            leases = {after.records[o.key].lease for o in purpose.operations if o.key in after.records}
            if purpose.claim is not None:
                leases.add(after.records[purpose.claim.key].lease)
            mine = [self._ids[lease] for lease in leases if lease in self._ids and _owner(lease) == writer]
            if not self.records.commit(purpose, mine[0] if mine else None).succeeded:
                raise Violation(f"{writer} carried out {purpose.step}, and a guard of it does not hold")
        if after.revision != self.records.revision:
            raise Violation(f"{writer} wrote revision {after.revision} instead of {self.records.revision}")
        there = {key for key in after.records if not key.startswith(HISTORY)}
        expected = {key for key in self.records.data if not key.startswith(HISTORY)}
        if there != expected:
            raise Violation(
                f"{writer} lost {sorted(expected - there)} and brought back {sorted(there - expected)}"
            )
        for key in sorted(there):
            stored = after.records[key]
            if stored == before.records.get(key):
                continue
            known = self.records.data[key]
            if seen_in(key, stored) != known.seen or self._ids.get(stored.lease) != known.lease:
                raise Violation(f"{writer} wrote {seen_in(key, stored)} at {key} instead of {known.seen}")


def _owner(lease: str) -> str:
    return lease.partition("/")[0]
