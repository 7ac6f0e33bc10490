"""The document of a run to and from bytes: one line of JSON, read strictly.

Pure. Whoever can reach the store can write there: what is read is checked against the layout, never executed,
and what is none, or of a newer version, raises `RendezvousStateError` with the name of its key. With a record
as :mod:`elastic.rendezvous.codec` writes it in place of each ``{...}``, the layout is::

    {"schema": 1, "history": "5f0c...", "revision": 42,
     "leases": {"node-a/1": 17},
     "records": {"nodes/node-a": {"modified": 40, "created": 3, "lease": "node-a/1", "value": {...}}},
     "past": [{"key": "nodes/node-a", "modified": 12, "created": 3, "lease": "node-a/1", "value": {...},
               "until": 40, "deleted": false}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from elastic.rendezvous.errors import RendezvousStateError

from .document import MOST_PAST, Document, Past, Stored

SCHEMA = 1
"""Version of the layout that this package writes, and the newest that it reads."""

MOST_BYTES = 4 * 1024 * 1024
"""Of a document. A thousand nodes need a tenth of it."""

T = TypeVar("T")


def encode(document: Document) -> bytes:
    """The document as JSON. ValueError for one that is too large."""
    fields = {
        "schema": SCHEMA,
        "history": document.history,
        "revision": document.revision,
        "leases": document.leases,
        "records": {key: _stored_fields(stored) for key, stored in document.records.items()},
        "past": [
            {"key": p.key, **_stored_fields(p.stored), "until": p.until, "deleted": p.deleted}
            for p in document.past
        ],
    }
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(
            f"the records of the run are {len(text)} bytes, and {MOST_BYTES} are the most that one key of a "
            "store should hold: use the etcd backend for a job of this size"
        )
    return text


def _stored_fields(stored: Stored) -> dict[str, Any]:
    return {
        "modified": stored.modified,
        "created": stored.created,
        "lease": stored.lease,
        "value": stored.value,
    }


def decode(key: str, state: bytes) -> Document:
    """The document that a state is; RendezvousStateError, with the name of its `key`, where it is none."""
    if len(state) > MOST_BYTES:
        raise _unreadable(key, f"it is {len(state)} bytes long")
    try:
        fields = json.loads(state)
    except (ValueError, RecursionError) as e:
        raise _unreadable(key, "it is not JSON") from e
    try:
        schema = _number(fields, "schema", at_least=1)
        if schema > SCHEMA:
            raise RendezvousStateError(
                f"the rendezvous state at {key!r} has schema version {schema}, and this agent reads versions "
                f"up to {SCHEMA}: run the same release of elastic on all nodes"
            )
        document = Document(
            history=_typed(fields, "history", str),
            revision=_number(fields, "revision", at_least=1),
            leases={k: _number(_typed(fields, "leases", dict), k) for k in _typed(fields, "leases", dict)},
            records={k: _stored(v) for k, v in _typed(fields, "records", dict).items()},
            past=tuple(_past(_typed(fields, "past", list))),
        )
    except _Malformed as e:
        raise _unreadable(key, str(e)) from e
    problem = _problem(document)
    if problem:
        raise _unreadable(key, problem)
    return document


class _Malformed(Exception):
    """What is wrong with a field."""


def _stored(fields: Any) -> Stored:
    return Stored(
        value=_typed(fields, "value", object),
        modified=_number(fields, "modified", at_least=1),
        created=_number(fields, "created", at_least=1),
        lease=_typed(fields, "lease", str),
    )


def _past(entries: list[Any]) -> Iterator[Past]:
    if len(entries) > MOST_PAST:
        raise _Malformed(f"past has {len(entries)} entries")
    for entry in entries:
        yield Past(
            key=_typed(entry, "key", str),
            stored=_stored(entry),
            until=_number(entry, "until", at_least=1),
            deleted=_typed(entry, "deleted", bool),
        )


def _typed(fields: Any, name: str, kind: type[T]) -> T:
    if not isinstance(fields, dict):
        raise _Malformed("it has something else where an object belongs")
    value = fields.get(name)
    if name not in fields or not isinstance(value, kind):
        raise _Malformed(f"{name!r} is missing or of another type")
    return value


def _number(fields: Any, name: str, *, at_least: int = 0) -> int:
    number = _typed(fields, name, int)
    if isinstance(number, bool) or number < at_least:
        raise _Malformed(f"{name!r} is {number!r}")
    return number


def _problem(document: Document) -> str:
    """What is wrong with a document of the right shape; empty for nothing."""
    if not document.history:
        return "its history has no name"
    for key, stored in document.records.items():
        if not stored.created <= stored.modified <= document.revision:
            return f"the revisions of {key!r} cannot be"
        if stored.lease and stored.lease not in document.leases:
            return f"{key!r} hangs on a lease that is not there"
    if any(not p.stored.created <= p.stored.modified < p.until <= document.revision for p in document.past):
        return "the revisions of a past value cannot be"
    return ""


def _unreadable(key: str, why: str) -> RendezvousStateError:
    return RendezvousStateError(
        f"the rendezvous state at {key!r} is not one of elastic's ({why}): delete it, or use another "
        "--rdzv-id"
    )
