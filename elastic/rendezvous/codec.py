"""Records to and from what etcd holds: one line of canonical protobuf JSON.

Reading is strict, since any process that can reach etcd can write there: a value is checked against
the schema, never executed, and what cannot be read or is of a newer version raises
`RendezvousStateError` with the name of its key.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from ._pb import rendezvous_pb2 as pb
from .core import view
from .core.records import SCHEMA, Control, Failure, Leader, Member, Node, Phase, Record, Round, Terminal
from .errors import RendezvousStateError

_MESSAGES: dict[type, type[Message]] = {
    Control: pb.Control,
    Failure: pb.Failure,
    Leader: pb.Leader,
    Member: pb.Member,
    Node: pb.Node,
    Round: pb.Round,
    Terminal: pb.Terminal,
}
_HINTS = {kind: typing.get_type_hints(kind) for kind in _MESSAGES}


def kind_of(key: str) -> type[Record] | None:
    """The type of the record that belongs at a key (relative to the run's prefix); None: not ours to read."""
    if key.startswith(view.NODES):
        return Node
    if key.startswith(view.HISTORY):
        return Round
    kinds: dict[str, type[Record]] = {
        view.ROUND: Round,
        view.CLOSED: Terminal,
        view.LEADER: Leader,
        view.CONTROL: Control,
    }
    return kinds.get(key)


def encode(record: Record, *, written_at: str) -> bytes:
    """One line of JSON. `written_at` is a wall time for people, as ISO 8601."""
    message: Any = _message(record)
    message.schema = SCHEMA
    message.written_at = written_at
    fields = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    # In the schema's order, which is the order in which people want to read it.
    ordered = {f.json_name: fields[f.json_name] for f in message.DESCRIPTOR.fields if f.json_name in fields}
    return json.dumps(ordered, ensure_ascii=False).encode()


def decode(key: str, value: bytes, kind: type[Record]) -> Record:
    """The record of that kind in `value`; RendezvousStateError where there is none."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as e:
        raise _unreadable(key, "it is not JSON") from e
    if not isinstance(document, dict):
        raise _unreadable(key, "it is not a JSON object")
    schema = document.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise _unreadable(key, "it has no schema version")
    if schema > SCHEMA:
        raise RendezvousStateError(
            f"the record at {key!r} has schema version {schema}, and this agent reads versions up to "
            f"{SCHEMA}: run the same release of elastic on all nodes"
        )
    try:
        message = json_format.ParseDict(document, _MESSAGES[kind]())
        record: Record = _value(kind, message)
    except (json_format.ParseError, TypeError, ValueError, RecursionError) as e:
        raise _unreadable(key, str(e)) from e
    problem = _problem(key, record)
    if problem:
        raise _unreadable(key, problem)
    return record


def _unreadable(key: str, why: str) -> RendezvousStateError:
    return RendezvousStateError(
        f"the record at {key!r} is not one of elastic's ({why}): delete it, or use another --rdzv-id"
    )


def _message(record: Any) -> Any:
    message: Any = _MESSAGES[type(record)]()
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value is None:
            continue
        if isinstance(value, enum.Enum):
            kinds = message.DESCRIPTOR.fields_by_name[field.name].enum_type
            setattr(message, field.name, kinds.values_by_name[value.name].number)
        elif isinstance(value, tuple):
            items = (_message(item) if dataclasses.is_dataclass(item) else item for item in value)
            getattr(message, field.name).extend(items)
        elif isinstance(value, Mapping):
            getattr(message, field.name).update(value)
        elif dataclasses.is_dataclass(value):
            getattr(message, field.name).CopyFrom(_message(value))
        else:
            setattr(message, field.name, value)
    return message


def _value(kind: type[Any], message: Any) -> Any:
    """The value of that type that a message holds; ValueError for an enum's UNKNOWN and unknown numbers."""
    arguments: dict[str, Any] = {}
    for name, hint in _HINTS[kind].items():
        descriptor = message.DESCRIPTOR.fields_by_name[name]
        if isinstance(hint, types.UnionType):  # `X | None`: a field that may be absent
            if not message.HasField(name):
                arguments[name] = None
                continue
            hint = next(h for h in typing.get_args(hint) if h is not types.NoneType)  # noqa: PLW2901
        value = getattr(message, name)
        if hint in _MESSAGES:
            arguments[name] = _value(hint, value)
        elif isinstance(hint, type) and issubclass(hint, enum.Enum):
            # Protobuf's parser lets numbers pass that the schema has no name for; the enum refuses them.
            known = descriptor.enum_type.values_by_number.get(value)
            arguments[name] = hint(value if known is None else known.name)
        elif typing.get_origin(hint) is tuple:
            of = typing.get_args(hint)[0]
            arguments[name] = tuple(_value(of, item) if of in _MESSAGES else item for item in value)
        elif typing.get_origin(hint) is Mapping:
            arguments[name] = dict(value)
        else:
            arguments[name] = value
    return kind(**arguments)


def _problem(key: str, record: Record) -> str:
    """What is wrong with a record that has the right shape; empty for nothing."""
    if isinstance(record, Node):
        if view.node_key(record.node_id) != key:
            return f"it names node {record.node_id!r}"
        if not (record.name and record.address and record.role):
            return "name, address or role is empty"
        if record.local_world_size < 1:
            return "local_world_size is 0"
    if isinstance(record, Round):
        if record.round < 1 or record.incarnation < 1:
            return "round or incarnation is 0"
        if not 1 <= record.min_nodes <= record.max_nodes:
            return f"min_nodes is {record.min_nodes} and max_nodes {record.max_nodes}"
        if len({m.node_id for m in record.world}) != len(record.world):
            return "a node is twice in its world"
        if record.phase is Phase.FORMED and not record.world:
            return "it is formed, with an empty world"
        if any(not m.node_id for m in record.world):
            return "a member has no node id"
        if any(m.local_world_size < 1 for m in record.world):
            return "a member has local_world_size 0"
        if any(rank >= len(record.world) for rank in record.finished):
            return "a member that is none is finished"
    return ""
