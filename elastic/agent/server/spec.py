"""What an agent manages, as values: the documented data types of an agent's worker group."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from pathlib import PurePath
from typing import Any

from elastic.multiprocessing.errors import ProcessFailure
from elastic.multiprocessing.redirects import Std, Streams
from elastic.rendezvous import RendezvousHandler
from elastic.store import Store


class WorkerState(str, enum.Enum):
    """State of a worker group, as its agent last saw it.

    UNKNOWN: the agent lost track of it. INIT: not started. HEALTHY: running. UNHEALTHY: running, but
    not making progress. STOPPED: stopped by the agent, to be started again or not. SUCCEEDED: all
    workers ended with exit code 0. FAILED: at least one did not.
    """

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether workers in this state have processes."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


@dataclass(kw_only=False)
class WorkerSpec:
    """Blueprint of the workers of one node.

    `role` names what they do; `local_world_size` is how many there are; `entrypoint` is a function or
    a command, and `args` its arguments (`fn` is the old name of `entrypoint`). `max_restarts` is how
    many worker failures the job survives; a node that is lost, leaves or arrives costs none.
    `monitor_interval` is how often, in seconds, a rendezvous that cannot tell of changes is looked at.
    `master_addr` and `master_port` override what the rendezvous offers. `local_addr` is this node's
    address. `labels` are published with this node, for people and schedulers. `start_method`, `redirects`,
    `tee` and `log_dir` are those of :func:`elastic.multiprocessing.start_processes`, for an agent that is not
    told otherwise. ValueError for impossible values.
    """

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable[..., Any] | None = None
    entrypoint: Callable[..., Any] | str | None = None
    args: tuple[Any, ...] = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    start_method: str = "spawn"
    redirects: Streams = Std.NONE
    tee: Streams = Std.NONE
    log_dir: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.fn is not None:
            warnings.warn("WorkerSpec.fn is deprecated: use entrypoint", DeprecationWarning, stacklevel=3)
            self.entrypoint = self.fn
        if self.entrypoint is None:
            raise ValueError("the worker spec has no entrypoint: give a function or a command")
        if not self.role:
            raise ValueError("the role is empty")
        if self.local_world_size < 1:
            raise ValueError(f"local_world_size is {self.local_world_size}: it must be at least 1")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts is {self.max_restarts}: it must not be negative")
        if self.monitor_interval <= 0:
            raise ValueError(f"monitor_interval is {self.monitor_interval}: it must be positive")

    def get_entrypoint_name(self) -> str:
        """A short name of what the workers run."""
        if isinstance(self.entrypoint, str):
            return PurePath(self.entrypoint).name
        return getattr(self.entrypoint, "__qualname__", repr(self.entrypoint))


@dataclass
class Worker:
    """One worker slot of the group, with its ranks; -1 before the first rendezvous."""

    local_rank: int = -1
    global_rank: int = -1
    role_rank: int = -1
    world_size: int = -1
    role_world_size: int = -1
    id: Any = None
    """Its process id, while it runs."""


class WorkerGroup:
    """The workers of one node, as their agent drives them."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.workers = [Worker(local_rank=i) for i in range(spec.local_world_size)]
        self.store: Store | None = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self.round = 0
        self.state = WorkerState.INIT


@dataclass(frozen=True)
class RunResult:
    """How an agent's run ended.

    All but the last two are keyed by global rank, and hold this node's workers; the one exception is that
    `failures` also holds the failure that ended the job where that was another node's. `victims` are the
    workers that ended badly because the agent stopped them. `exit_code` is what the agent's process should
    end with and `reason` says why, for people.
    """

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    victims: dict[int, ProcessFailure] = field(default_factory=dict)
    exit_code: int = 0
    reason: str = ""

    def is_failed(self) -> bool:
        """Whether the run failed."""
        return self.state is WorkerState.FAILED
