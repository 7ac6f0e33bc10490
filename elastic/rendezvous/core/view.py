"""What one node knows of the shared state.

Knowledge only moves forward: each key carries the revision that wrote or deleted it, and news that
is not newer is dropped. So a late watch event, an event delivered twice and a read that overtook
the watch all do no harm, and the order in which a node hears of two keys does not matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from .records import Control, Leader, Node, Record, Round, Terminal

ROUND = "round"
CLOSED = "closed"
LEADER = "leader"
CONTROL = "control"
NODES = "nodes/"
HISTORY = "history/"
STORE = "store/"

R_co = TypeVar("R_co", bound=Record, covariant=True)


def node_key(node_id: str) -> str:
    return NODES + node_id


def followed(node_id: str, *, nodes: bool) -> tuple[str, ...]:
    """The keys and prefixes that a node follows: with all `nodes`, or its own alone."""
    return (ROUND, CLOSED, LEADER, CONTROL, NODES if nodes else node_key(node_id))


def history_key(round_number: int) -> str:
    return f"{HISTORY}{round_number:08d}"


def store_prefix(round_number: int) -> str:
    """Where the agents' key/value store of one round lies."""
    return f"{STORE}{round_number:08d}/"


@dataclass(frozen=True, slots=True)
class Seen(Generic[R_co]):
    """A record, with the revisions that last wrote it and created it (0: not known, so as before)."""

    record: R_co
    mod_revision: int
    create_revision: int


@dataclass(frozen=True, slots=True)
class Fact:
    """News of one key: what was written at a revision, or that it was deleted then."""

    key: str
    revision: int
    seen: Seen[Record] | None


def _created_as_before(seen: Seen[Record], before: Seen[Record] | None) -> Seen[Record]:
    if seen.create_revision or before is None:
        return seen
    return replace(seen, create_revision=before.create_revision)


@dataclass(frozen=True, slots=True)
class View:
    """Everything known, by key. Use the properties; `learn` returns the view with the news in it."""

    entries: Mapping[str, Seen[Record]] = field(default_factory=dict)
    revisions: Mapping[str, int] = field(default_factory=dict)

    def learn(self, facts: Iterable[Fact]) -> View:
        """This view with those facts in it that are news."""
        entries: dict[str, Seen[Record]] | None = None
        revisions: dict[str, int] = {}
        for fact in facts:
            if fact.revision <= (revisions or self.revisions).get(fact.key, 0):
                continue
            if entries is None:
                entries, revisions = dict(self.entries), dict(self.revisions)
            revisions[fact.key] = fact.revision
            if fact.seen is None:
                entries.pop(fact.key, None)
            else:
                entries[fact.key] = _created_as_before(fact.seen, entries.get(fact.key))
        return self if entries is None else replace(self, entries=entries, revisions=revisions)

    def read(self, revision: int, scope: Collection[str], found: Mapping[str, Seen[Record]]) -> View:
        """This view after a read at `revision` of all keys in `scope` (a key, or a prefix ending in "/").

        What the read did not find did not exist then.
        """
        gone = [Fact(key, revision, None) for key in sorted(self._covered(scope) - found.keys())]
        there = [Fact(key, seen.mod_revision, seen) for key, seen in found.items()]
        return self.learn([*gone, *there])

    def _covered(self, scope: Collection[str]) -> set[str]:
        """The keys of `scope`: those that it names, and those known under its prefixes."""
        prefixes = tuple(key for key in scope if key.endswith("/"))
        named = {key for key in scope if not key.endswith("/")}
        return named | {key for key in self.entries if key.startswith(prefixes)}

    def contradicted_by(
        self, revision: int, scope: Collection[str], found: Mapping[str, Seen[Record]]
    ) -> bool:
        """Whether a read of `scope` at `revision` that found this cannot be of the history known here.

        It is behind it, or it found a key as of a revision at which something else was known of that key, or
        none where it is known to have been written at that very revision. The last two tell of lost data also
        where the new history has grown to the revisions known here, or past them.
        """
        if revision < max(self.revisions.values(), default=0):
            return True
        for key, seen in found.items():
            before, known = self.entries.get(key), self.revisions.get(key, 0)
            if seen.mod_revision < known:
                return True
            if seen.mod_revision == known and (before is None or before.record != seen.record):
                return True
        absent = self._covered(scope) - found.keys()
        return any(key in self.entries and self.revisions.get(key) == revision for key in absent)

    def without_nodes(self, keep: str) -> View:
        """This view less all nodes but one: what a node that no longer leads goes on with."""
        own = node_key(keep)
        return replace(
            self,
            entries={k: v for k, v in self.entries.items() if not k.startswith(NODES) or k == own},
            # Also those of deletions, so that late news of a deleted key stays old news.
            revisions={k: v for k, v in self.revisions.items() if not k.startswith(NODES) or k == own},
        )

    def _seen(self, key: str, kind: type[R_co]) -> Seen[R_co] | None:
        seen = self.entries.get(key)
        if seen is None or not isinstance(seen.record, kind):
            return None
        return Seen(seen.record, seen.mod_revision, seen.create_revision)

    @property
    def round(self) -> Seen[Round] | None:
        return self._seen(ROUND, Round)

    @property
    def closed(self) -> Seen[Terminal] | None:
        return self._seen(CLOSED, Terminal)

    @property
    def leader(self) -> Seen[Leader] | None:
        return self._seen(LEADER, Leader)

    @property
    def control(self) -> Seen[Control] | None:
        return self._seen(CONTROL, Control)

    def node(self, node_id: str) -> Seen[Node] | None:
        return self._seen(node_key(node_id), Node)

    @property
    def nodes(self) -> dict[str, Seen[Node]]:
        """All known nodes by id, in order of arrival. Complete only on the leader."""
        found = [
            Seen(s.record, s.mod_revision, s.create_revision)
            for s in self.entries.values()
            if isinstance(s.record, Node)
        ]
        found.sort(key=lambda s: (s.create_revision, s.record.node_id))
        return {s.record.node_id: s for s in found}
