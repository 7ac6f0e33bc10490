"""The records of a rendezvous, as values.

They mirror ``protos/elastic/v1/rendezvous.proto``, which documents each field; the translation to
and from what etcd holds is :mod:`elastic.rendezvous.codec`. Records are valid by the time they get
here: the codec checks what it reads.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

SCHEMA = 1
"""Version of the records' layout that this package writes, and the newest that it reads."""


class Want(enum.Enum):
    """What a node wants; see the schema for the meaning of each."""

    JOINING = "JOINING"
    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"
    DONE = "DONE"
    WAITING = "WAITING"
    SPARE = "SPARE"
    LEAVING = "LEAVING"


class Phase(enum.Enum):
    """Whether a round still gathers nodes or has its world."""

    OPEN = "OPEN"
    FORMED = "FORMED"


class Trigger(enum.Enum):
    """What kind of thing opened a round; see the schema."""

    UNTOLD = "UNTOLD"
    START = "START"
    FAILURE = "FAILURE"
    LOST = "LOST"
    LEFT = "LEFT"
    REPLACED = "REPLACED"
    ARRIVAL = "ARRIVAL"
    REQUEST = "REQUEST"
    RECOVERY = "RECOVERY"


class Outcome(enum.Enum):
    """How a job ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A worker failure, as its node saw it."""

    round: int
    rank: int
    local_rank: int
    exit_code: int
    message: str
    final: bool = False
    hostname: str = ""
    pid: int = 0
    signal: int = 0
    error: str = ""
    traceback: str = ""
    stderr: str = ""
    hint: str = ""
    log: str = ""
    error_file: str = ""
    time: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What one node says of itself."""

    node_id: str
    want: Want
    round: int
    name: str
    address: str
    hostname: str
    pid: int
    local_world_size: int
    role: str
    master_port: int
    rank: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    cause: str = ""
    failure: Failure | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node in a world: the part of its record that the others need."""

    node_id: str
    name: str
    address: str
    hostname: str
    local_world_size: int
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The committed record of a round: open (nodes gather) or formed (its world runs)."""

    incarnation: int
    round: int
    phase: Phase
    min_nodes: int
    max_nodes: int
    world: tuple[Member, ...] = ()
    master_addr: str = ""
    master_port: int = 0
    nodes_waiting: int = 0
    nodes_leaving: int = 0
    departed: int = 0
    failures: int = 0
    cause: str = ""
    trigger: Trigger = Trigger.UNTOLD
    finished: tuple[int, ...] = ()

    def rank_of(self, node_id: str) -> int | None:
        """The node rank of a member of this world; None for a node outside it."""
        return next((rank for rank, member in enumerate(self.world) if member.node_id == node_id), None)

    @property
    def finished_ids(self) -> set[str]:
        """The node ids of the members that `finished` names."""
        return {self.world[rank].node_id for rank in self.finished}

    @property
    def formed(self) -> bool:
        return self.phase is Phase.FORMED

    @property
    def full(self) -> bool:
        return len(self.world) >= self.max_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """How a job ended. Written once; final for its incarnation."""

    outcome: Outcome
    reason: str
    exit_code: int
    incarnation: int
    round: int
    node_id: str
    job_token: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads."""

    node_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What operators want of all agents while the job runs. It decides nothing about membership."""

    find_stragglers: bool


Record = Node | Round | Terminal | Leader | Control
