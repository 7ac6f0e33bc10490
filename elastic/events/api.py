"""The events themselves: values that are checked once, when they are made, and that are one line of JSON.

They know nothing of where they go. Field names and order are torch's; tensorplay's names are accepted as
keywords and can be read as attributes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeVar

from elastic.utils.aliases import either

EventMetadataValue = str | int | float | bool | None
"""What the metadata of an event may hold."""

_E = TypeVar("_E", bound=Enum)
_T = TypeVar("_T")


class EventSource(str, Enum):
    """Who an event is about: the agent, a worker, or the rendezvous."""

    AGENT = "AGENT"
    WORKER = "WORKER"
    RDZV = "RDZV"


class NodeState(str, Enum):
    """The states that a node can be in. INITIALIZED is another name of INIT."""

    INIT = "INIT"
    INITIALIZED = "INIT"  # noqa: PIE796 - an alias: one peer has the one name, one the other
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CLOSED = "CLOSED"


@dataclass(init=False, slots=True)
class Event:
    """Something that happened while a job ran.

    Args:
        name: What happened. Also by the keyword ``event_type``.
        source: Who it is about: an `EventSource`, or the name of one.
        timestamp: When, in milliseconds since 1970. Also by the keyword ``created``. Default: now.
        metadata: More about it. Copied.

    Raises:
        TypeError: Name or source is missing or given twice, or a field has the wrong type.
        ValueError: There is no such source, or a number in the metadata is not finite.
    """

    name: str
    source: EventSource
    timestamp: int
    metadata: dict[str, EventMetadataValue]

    def __init__(
        self,
        name: str | None = None,
        source: EventSource | str | None = None,
        timestamp: int | None = None,
        metadata: Mapping[str, EventMetadataValue] | None = None,
        *,
        event_type: str | None = None,
        created: int | None = None,
    ) -> None:
        given = either("an event", "name", name, "event_type", event_type)
        if given is None or source is None:
            raise TypeError("an event needs a name and a source")
        when = either("an event", "timestamp", timestamp, "created", created)
        self.name = _checked("the event", "name", given, str)
        self.source = _member(EventSource, source)
        self.timestamp = _now() if when is None else _checked("the event", "timestamp", when, int)
        self.metadata = dict(metadata or {})
        for key, value in self.metadata.items():
            _check_metadata(self.name, key, value)

    @property
    def event_type(self) -> str:
        """Another name of `name`."""
        return self.name

    @event_type.setter
    def event_type(self, value: str) -> None:
        self.name = value

    @property
    def created(self) -> int:
        """Another name of `timestamp`."""
        return self.timestamp

    @created.setter
    def created(self, value: int) -> None:
        self.timestamp = value

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        """The event as one line of JSON. ValueError where what it was changed to has no JSON."""
        return _line(self)

    @classmethod
    def deserialize(cls, data: str | Event) -> Event:
        """The event that `serialize` wrote; an event is returned as it is.

        tensorplay's names of fields are read too. ValueError for anything else: text that is not strict
        JSON, a field that is missing, unknown, or of the wrong type.
        """
        if isinstance(data, Event):
            return data
        return _read(cls, data, {"event_type": "name", "created": "timestamp"}, needed=("name", "source"))


@dataclass(init=False, slots=True)
class RdzvEvent:
    """A step of a rendezvous.

    Args:
        name: What the node was about. Also by the keyword ``rendezvous_id``.
        run_id: The job.
        message: What happened, for people.
        hostname: The node's host.
        pid: The process.
        node_state: What the node has come to: a `NodeState`, or the name of one.
        master_endpoint: The master's address, if it is known.
        rank: The node's rank, if it has one.
        local_id: Tells agents of one process apart. Also by the keyword ``local_rank``.
        error_trace: The traceback, of an error.

    Raises:
        TypeError: A field is given under both its names, or has the wrong type.
        ValueError: There is no such state.
    """

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str
    rank: int | None
    local_id: int | None
    error_trace: str

    def __init__(
        self,
        name: str | None = None,
        run_id: str = "",
        message: str = "",
        hostname: str = "",
        pid: int = 0,
        node_state: NodeState | str = NodeState.RUNNING,
        master_endpoint: str = "",
        rank: int | None = None,
        local_id: int | None = None,
        error_trace: str = "",
        *,
        rendezvous_id: str | None = None,
        local_rank: int | None = None,
    ) -> None:
        what = "the rendezvous event"
        given = either(what, "name", name, "rendezvous_id", rendezvous_id)
        self.name = _checked(what, "name", given or "", str)
        self.run_id = _checked(what, "run_id", run_id, str)
        self.message = _checked(what, "message", message, str)
        self.hostname = _checked(what, "hostname", hostname, str)
        self.pid = _checked(what, "pid", pid, int)
        self.node_state = _member(NodeState, node_state)
        self.master_endpoint = _checked(what, "master_endpoint", master_endpoint, str)
        self.rank = None if rank is None else _checked(what, "rank", rank, int)
        local = either(what, "local_id", local_id, "local_rank", local_rank)
        self.local_id = None if local is None else _checked(what, "local_id", local, int)
        self.error_trace = _checked(what, "error_trace", error_trace, str)

    @property
    def rendezvous_id(self) -> str:
        """Another name of `name`."""
        return self.name

    @property
    def local_rank(self) -> int | None:
        """Another name of `local_id`."""
        return self.local_id

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        """The event as one line of JSON."""
        return _line(self)

    @classmethod
    def deserialize(cls, data: str | RdzvEvent) -> RdzvEvent:
        """The event that `serialize` wrote; an event is returned as it is. ValueError as with `Event`."""
        if isinstance(data, RdzvEvent):
            return data
        needed = ("run_id", "message", "hostname", "pid", "node_state")
        return _read(cls, data, {"rendezvous_id": "name", "local_rank": "local_id"}, needed=needed)


def _now() -> int:
    """Milliseconds since 1970: for people, and never compared."""
    return time.time_ns() // 1_000_000


def _member(kind: type[_E], value: _E | str) -> _E:
    if isinstance(value, kind):
        return value
    # By name, so that an alias is found too.
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    raise ValueError(f"unknown {kind.__name__} {value!r}: known are {', '.join(kind.__members__)}")


def _checked(what: str, field: str, value: _T, kind: type) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(
            f"{what}'s {field} is {value!r}: it must be {'text' if kind is str else 'a whole number'}"
        )
    return value


def _check_metadata(name: str, key: object, value: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"the event {name!r} has the metadata key {key!r}: keys must be text")
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError(
            f"the event {name!r} has the metadata {key!r} of type {type(value).__name__}: "
            "use text, a number, a bool or None; put anything else into text, such as JSON"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the event {name!r} has the metadata {key!r} = {value}, which JSON lacks: use text")


def _line(event: Event | RdzvEvent) -> str:
    values: dict[str, Any] = {f.name: getattr(event, f.name) for f in fields(event)}
    try:
        return json.dumps(values, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the event {event.name!r} cannot be written as JSON: {error}") from error


def _read(kind: type[_T], data: str, aliases: Mapping[str, str], *, needed: tuple[str, ...]) -> _T:
    what = kind.__name__
    if not isinstance(data, str):
        raise ValueError(f"{what} cannot be read from {type(data).__name__}: expected a line of JSON")
    try:
        values = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} cannot be read: {error} in {data[:200]!r}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{what} cannot be read from {data[:200]!r}: expected a JSON object")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    named: dict[str, Any] = {}
    for key, value in values.items():
        field = aliases.get(key, key)
        if field not in known:
            raise ValueError(f"{what} has no field {key!r}: known are {', '.join(sorted(known))}")
        if field in named:
            raise ValueError(f"{what} takes {field} once: {data[:200]!r} has it under both its names")
        named[field] = value
    if missing := [name for name in needed if name not in named]:
        raise ValueError(f"{what} cannot be read: {', '.join(missing)} is missing in {data[:200]!r}")
    if not isinstance(named.get("metadata", {}), dict):
        raise ValueError(
            f"{what} cannot be read: its metadata is {named['metadata']!r}, expected a JSON object"
        )
    try:
        return kind(**named)
    except TypeError as error:
        raise ValueError(f"{what} cannot be read: {error}") from error


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not strict JSON")
