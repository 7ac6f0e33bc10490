"""What a decision can ask for. The shell carries these out, and tells the protocol what came of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .records import Record


class Keep(enum.Enum):
    """How long a written key lives."""

    NODE = "while this node's lease is held"
    RETENTION = "for the retention time after the last node has gone"
    TERMINAL = "for the terminal record's own time"


@dataclass(frozen=True, slots=True)
class Absent:
    """Guard: the key does not exist."""

    key: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Guard: the key was last written at this revision."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True)
class SameCreation:
    """Guard: the key is still the one that was created at this revision."""

    key: str
    create_revision: int


Guard = Absent | Unchanged | SameCreation


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    record: Record
    keep: Keep


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a key, or all keys under a prefix that ends in "/"."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One transaction: where all guards hold, all operations are done; else nothing is.

    ``step`` names it, for logs and for fault injection; ``why`` says in words what it is for.
    ``claim`` is written as well where its key does not exist; whether it did changes nothing else.
    """

    step: str
    why: str
    guards: tuple[Guard, ...]
    operations: tuple[Put | Delete, ...]
    claim: Put | None = None


@dataclass(frozen=True, slots=True)
class HoldLease:
    """Get a lease for this node's keys and keep it alive."""


@dataclass(frozen=True, slots=True)
class FollowNodes:
    """Read all node records and watch them: this node leads now."""


@dataclass(frozen=True, slots=True)
class UnfollowNodes:
    """Stop watching the node records: this node no longer leads."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something changes, or until this time."""

    until: float | None = None


Action = Commit | HoldLease | FollowNodes | UnfollowNodes | Rest
