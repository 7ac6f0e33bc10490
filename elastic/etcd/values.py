"""The values that go into and come out of etcd: keys, ranges, compares, operations, results, events.

Pure and frozen: nothing here talks to a server, and nothing here is a protobuf message (see `wire`).
Keys and values are bytes. Wherever a range is expected, plain bytes mean that one key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `start` up to but without `end`; an empty `end` is the one key `start`.

    Make one with `key`, `prefix` or `ALL_KEYS`. An `end` of b"\\0" is etcd's spelling of "no upper end".
    """

    start: bytes
    end: bytes = b""

    def __post_init__(self) -> None:
        if not self.start:
            raise ValueError("an etcd key cannot be empty: use ALL_KEYS for every key")

    def __contains__(self, key: bytes) -> bool:
        if not self.end:
            return key == self.start
        return key >= self.start and (self.end == b"\0" or key < self.end)


ALL_KEYS = KeyRange(b"\0", b"\0")

Keys: TypeAlias = bytes | KeyRange


def key(name: bytes) -> KeyRange:
    """The range of this one key."""
    return KeyRange(name)


def prefix(name: bytes) -> KeyRange:
    """The range of every key that begins with `name`; the empty prefix is every key."""
    if not name:
        return ALL_KEYS
    # The end is the prefix with its last byte raised; 0xff cannot be raised, so it is dropped first.
    stem = name.rstrip(b"\xff")
    return KeyRange(name, stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0")


def as_range(keys: Keys) -> KeyRange:
    """The range that `keys` means: plain bytes are one key."""
    return keys if isinstance(keys, KeyRange) else KeyRange(keys)


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as etcd stores it. A deleted one (in an event) has only its key and `mod_revision`."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a read saw: the store's `revision` then, and the key-values in key order.

    `more` says that a limit cut the list; a watch from `revision + 1` continues it without a gap.
    """

    revision: int
    kvs: tuple[KeyValue, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Deletion:
    """The outcome of a delete: the store's `revision` after it, and how many keys it removed."""

    revision: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one key; `kv` is the key after it."""

    deleted: bool
    kv: KeyValue


# Transactions: compares


class Target(Enum):
    """The property of a key that a compare looks at."""

    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VALUE = "value"
    LEASE = "lease"


class Is(Enum):
    """How a compare's property and operand must relate."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction; for a range it must hold for every key in it."""

    keys: Keys
    target: Target
    relation: Is
    operand: int | bytes


def absent(keys: Keys) -> Compare:
    """True if the key (or, for a range, every key of it) does not exist."""
    return Compare(keys, Target.CREATE_REVISION, Is.EQUAL, 0)


def exists(name: bytes) -> Compare:
    """True if the key exists."""
    return Compare(name, Target.CREATE_REVISION, Is.GREATER, 0)


def created_at(name: bytes, revision: int) -> Compare:
    """True if the key was created at this revision and not deleted since; 0 means that it is absent."""
    return Compare(name, Target.CREATE_REVISION, Is.EQUAL, revision)


def modified_at(name: bytes, revision: int) -> Compare:
    """True if the key was last written at this revision; 0 means that it is absent."""
    return Compare(name, Target.MOD_REVISION, Is.EQUAL, revision)


def value_is(name: bytes, value: bytes) -> Compare:
    """True if the key exists and has this value."""
    return Compare(name, Target.VALUE, Is.EQUAL, value)


def version_is(name: bytes, version: int) -> Compare:
    """True if the key was written this many times since its creation; 0 means that it is absent."""
    return Compare(name, Target.VERSION, Is.EQUAL, version)


def lease_is(name: bytes, lease: int) -> Compare:
    """True if the key is attached to this lease; 0 means that it exists without a lease, or is absent."""
    return Compare(name, Target.LEASE, Is.EQUAL, lease)


# Transactions: operations and their results


@dataclass(frozen=True, slots=True)
class Put:
    """Write `value` under `key`, attached to `lease` (0: to none)."""

    key: bytes
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Get:
    """Read a key or a range; `limit` 0 is no limit."""

    keys: Keys
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key or a range."""

    keys: Keys


@dataclass(frozen=True, slots=True)
class Txn:
    """A transaction inside a transaction."""

    compare: tuple[Compare, ...]
    success: tuple[Operation, ...]
    failure: tuple[Operation, ...] = ()


Operation: TypeAlias = Put | Get | Delete | Txn


@dataclass(frozen=True, slots=True)
class PutResult:
    """The outcome of a `Put` in a transaction: the revision it wrote."""

    revision: int


@dataclass(frozen=True, slots=True)
class GetResult:
    """The outcome of a `Get` in a transaction."""

    kvs: tuple[KeyValue, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The outcome of a `Delete` in a transaction: how many keys it removed."""

    deleted: int


@dataclass(frozen=True, slots=True)
class TxnResult:
    """The outcome of a transaction: which branch ran, the store's revision after it, and the results.

    `responses` has one entry for each operation of the branch that ran, in order. `revision` is also right
    for a branch that wrote nothing: a watch from `revision + 1` misses nothing.
    """

    succeeded: bool
    revision: int
    responses: tuple[OperationResult, ...]


OperationResult: TypeAlias = PutResult | GetResult | DeleteResult | TxnResult


@dataclass(frozen=True, slots=True)
class CasResult:
    """The outcome of `compare_and_set`.

    `current` is the key as it stands: ours if `succeeded`, else what is there instead (None: no key).
    """

    succeeded: bool
    revision: int
    current: KeyValue | None


# Leases, members


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted lease; `ttl` in seconds, as the server gave it, which may be more than was asked for."""

    id: int
    ttl: int


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease as the server sees it: seconds left (`remaining`), seconds granted, and the keys attached."""

    id: int
    remaining: int
    granted: int
    keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the etcd cluster."""

    id: int
    name: str
    client_urls: tuple[str, ...]
    peer_urls: tuple[str, ...]
    learner: bool


@dataclass(frozen=True, slots=True)
class Status:
    """What one member says of itself; `leader` is a member id, 0 if it knows none."""

    endpoint: str
    cluster_id: int
    member_id: int
    version: str
    leader: int
    revision: int
    raft_term: int
    db_size: int
    errors: tuple[str, ...]
