"""The settings of a dynamic rendezvous, and their names on the command line (``--rdzv-conf``).

`KEYS` documents every key, and `BELONGS` says which are for some backends only. A key that is unknown, or for
other backends, is refused; an unknown one with the nearest that is known.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from .api import RendezvousParameters
from .core.rules import Rules

KEYS: Mapping[str, str] = {
    "join_timeout": "seconds that a node waits for a world (600)",
    "timeout": "another name of join_timeout",
    "last_call_timeout": "seconds that a first world of min_nodes waits for more nodes (30)",
    "close_timeout": "seconds that leaving and closing may take (30)",
    "heartbeat_timeout": "seconds after which a keep-alive without an answer is sent again, 2 at most (5)",
    "ttl": "seconds after which a node that died is known to be gone: its lease's time to live (10)",
    "keep_alive_interval": "with keep_alive_max_attempt: ttl is their product (5, where the other is given)",
    "keep_alive_max_attempt": "see keep_alive_interval (3, where the other is given)",
    "regroup_timeout": "seconds that a later world waits for newcomers once all live members joined (0)",
    "rejoin_grace": "seconds in which a member whose record vanished may come back unharmed (1)",
    "settle_timeout": "seconds without a further arrival after which a running world lets newcomers in (1)",
    "connect_timeout": "seconds in which the backend must answer at the start; an agent elsewhere that runs "
    "the store has join_timeout, if this is not given (10)",
    "read_timeout": "seconds that one call to the backend may take (10)",
    "failsafe_timeout": "seconds for which the backend may be away before a node gives up (no limit)",
    "progress_interval": "seconds after which a node that waits first says for what; then ever longer (5)",
    "retention": "seconds that the run's records outlive its last node (604800)",
    "terminal_ttl": "seconds that the record of how a job ended is kept (86400)",
    "node_name": "name of this node; an agent takes the place of an earlier one of the same name",
    "job_token": "names one submission of the job: an agent that comes after its end does not start it again",
    "etcd_prefix": "where in etcd the runs are kept (/elastic)",
    "find_members": "1: should no endpoint given answer, use the other members that etcd knows of (0)",
    "protocol": "http or https, for endpoints that do not say (http)",
    "ca_cert": "file with the certificate authority of etcd (also: cacert)",
    "ssl_cert": "file with this client's certificate (also: cert)",
    "ssl_cert_key": "file with its key (also: key)",
    "user": "etcd user; the password comes from password_file or the environment",
    "password_file": "file that holds the etcd user's password",
    "fallback": "backend that is used where etcd does not answer at the start: p10d, c10d or tcp (none)",
    "fallback_endpoint": "where that backend is found, as host:port; the same on all nodes",
    "store_type": "tcp: the endpoint is host:port of a store; file: it is the path of one (tcp)",
    "is_host": "1 or 0: whether this agent runs the store (whoever has the address of the endpoint)",
    "secret_file": "file with what nodes must know to use the store (or: ELASTIC_STORE_SECRET)",
}
"""Every key of ``--rdzv-conf``: its meaning and default."""

_ETCD = frozenset({"etcd"})
_HOSTED = frozenset({"tcp", "p10d", "c10d"})

BELONGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            *("etcd_prefix", "find_members", "protocol", "ca_cert", "ssl_cert", "ssl_cert_key"),
            *("user", "password_file", "retention", "terminal_ttl"),
            *("fallback", "fallback_endpoint"),
        ),
        _ETCD,
    ),
    "store_type": frozenset({"p10d", "c10d"}),
    "is_host": _HOSTED,
    "secret_file": _HOSTED | _ETCD,
}
"""The backends that a key is for, where not for all. etcd takes `secret_file` for its fallback."""

_PAIR = frozenset({"keep_alive_interval", "keep_alive_max_attempt"})
_ALIASES = {"cacert": "ca_cert", "cert": "ssl_cert", "key": "ssl_cert_key", "timeout": "join_timeout"}
_GOODBYE_SECONDS = 5.0
_RUN_ID = re.compile(r"[^\x00-\x20/\x7f]+")


@dataclass(frozen=True)
class RendezvousTimeout:
    """How long each phase may take. All must be positive.

    `join`: until a node is in a world. `last_call`: a first world of `min_nodes` waits for more.
    `close`: leaving and closing. `heartbeat`: one keep-alive.
    """

    join: timedelta = timedelta(seconds=600)
    last_call: timedelta = timedelta(seconds=30)
    close: timedelta = timedelta(seconds=30)
    heartbeat: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        for name in ("join", "close", "heartbeat"):
            if getattr(self, name) <= timedelta(0):
                raise ValueError(f"the {name} timeout is {getattr(self, name)}: it must be positive")
        if self.last_call < timedelta(0):
            raise ValueError(f"the last_call timeout is {self.last_call}: it must not be negative")


@dataclass(frozen=True, kw_only=True)
class RendezvousSettings:
    """Settings of one node's rendezvous.

    `ttl` is how long after its death a node is known to be gone. etcd counts it anew from each restart or
    election of its own, so under those the bound runs from the last of them, plus `Rules.return_grace` and
    `rejoin_grace`; who cannot wait deletes the node's record. `keep_alive_interval` (None: a
    third of `ttl`) is the time between two heartbeats over a plain store; etcd's client has its own.
    """

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout = field(default_factory=RendezvousTimeout)
    ttl: timedelta = timedelta(seconds=10)
    keep_alive_interval: timedelta | None = None
    regroup_timeout: timedelta = timedelta(0)
    rejoin_grace: timedelta = timedelta(seconds=1)
    settle_timeout: timedelta = timedelta(seconds=1)
    connect_timeout: timedelta = timedelta(seconds=10)
    read_timeout: timedelta = timedelta(seconds=10)
    failsafe_timeout: timedelta | None = None
    progress_interval: timedelta = timedelta(seconds=5)
    retention: timedelta = timedelta(days=7)
    terminal_ttl: timedelta = timedelta(days=1)
    find_members: bool = False
    node_name: str = ""
    job_token: str = ""

    def __post_init__(self) -> None:
        if not self.run_id:
            raise ValueError("the run id is empty: name the job, for instance --rdzv-id=my-job")
        if not _RUN_ID.fullmatch(self.run_id):
            raise ValueError(
                f"the run id {self.run_id!r} has a slash, a space or a control character: use letters, "
                "digits, dots and dashes"
            )
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ValueError(
                f"min_nodes is {self.min_nodes} and max_nodes {self.max_nodes}: 1 <= min <= max must hold"
            )
        if self.ttl < timedelta(seconds=2):
            raise ValueError(
                f"ttl is {self.ttl.total_seconds():g} s: give 2 s or more, as etcd grants none shorter"
            )
        interval = self.keep_alive_interval
        if interval is not None and not timedelta(0) < interval <= self.ttl / 2:
            raise ValueError(
                f"keep_alive_interval is {interval.total_seconds():g} s and ttl "
                f"{self.ttl.total_seconds():g} s: let there be two heartbeats or more in a ttl"
            )
        for name in ("retention", "terminal_ttl"):
            if getattr(self, name) < timedelta(seconds=60):
                raise ValueError(f"{name} is under a minute: records must outlive the nodes that read them")
        if self.progress_interval <= timedelta(0):
            raise ValueError(f"progress_interval is {self.progress_interval}: it must be positive")
        if not _RUN_ID.fullmatch(self.node_name or "-"):
            raise ValueError(f"the node name {self.node_name!r} has a slash, a space or a control character")

    @staticmethod
    def from_params(params: RendezvousParameters) -> RendezvousSettings:
        """The settings that a rendezvous was asked for; ValueError, in one sentence, for wrong ones."""
        refuse_unknown_keys(params)

        def seconds(key: str, default: float) -> timedelta:
            return timedelta(seconds=params.get_as_seconds(key, default))

        timeout = RendezvousTimeout(
            join=seconds("join_timeout" if "join_timeout" in params.config else "timeout", 600),
            last_call=seconds("last_call_timeout", 30),
            close=seconds("close_timeout", 30),
            heartbeat=seconds("heartbeat_timeout", 5),
        )
        return RendezvousSettings(
            run_id=params.run_id,
            min_nodes=params.min_nodes,
            max_nodes=params.max_nodes,
            timeout=timeout,
            ttl=_ttl(params),
            keep_alive_interval=_interval(params),
            regroup_timeout=seconds("regroup_timeout", 0),
            rejoin_grace=seconds("rejoin_grace", 1),
            settle_timeout=seconds("settle_timeout", 1),
            connect_timeout=seconds("connect_timeout", 10),
            read_timeout=seconds("read_timeout", 10),
            failsafe_timeout=seconds("failsafe_timeout", 0) or None,
            progress_interval=seconds("progress_interval", 5),
            retention=seconds("retention", 7 * 86400),
            terminal_ttl=seconds("terminal_ttl", 86400),
            find_members=bool(params.get_as_bool("find_members", False)),
            node_name=str(params.get("node_name", "")),
            job_token=str(params.get("job_token", "")),
        )

    @property
    def goodbye_seconds(self) -> float:
        """The time for giving the lease up, which ends by itself soon enough."""
        return min(self.timeout.close.total_seconds(), _GOODBYE_SECONDS)

    @property
    def heartbeat_seconds(self) -> float:
        """The time between two heartbeats over a plain store."""
        interval = self.ttl / 3 if self.keep_alive_interval is None else self.keep_alive_interval
        return interval.total_seconds()

    @property
    def call_seconds(self) -> float:
        """How long one call to a plain store may take: a slow one must not cost a node its lease."""
        return min(
            self.read_timeout.total_seconds(),
            self.timeout.heartbeat.total_seconds(),
            self.ttl.total_seconds() / 3,
        )

    @property
    def rules(self) -> Rules:
        """The part of the settings that the protocol's decisions depend on."""
        return Rules(
            min_nodes=self.min_nodes,
            max_nodes=self.max_nodes,
            last_call=self.timeout.last_call.total_seconds(),
            regroup=self.regroup_timeout.total_seconds(),
            rejoin_grace=self.rejoin_grace.total_seconds(),
            settle=self.settle_timeout.total_seconds(),
            job_token=self.job_token,
        )


def _ttl(params: RendezvousParameters) -> timedelta:
    torch_keys = _PAIR & params.config.keys()
    if not torch_keys:
        return timedelta(seconds=params.get_as_seconds("ttl", 10))
    if "ttl" in params.config:
        raise ValueError(
            f"rendezvous settings ttl and {sorted(torch_keys)[0]} both say the lease's time: give one"
        )
    interval = params.get_as_seconds("keep_alive_interval", 5)
    return timedelta(seconds=interval * params.get_as_seconds("keep_alive_max_attempt", 3))


def _interval(params: RendezvousParameters) -> timedelta | None:
    if not _PAIR & params.config.keys():
        return None
    interval = timedelta(seconds=params.get_as_seconds("keep_alive_interval", 5))
    # One attempt may be enough for etcd, whose leases are kept alive otherwise.
    return interval if interval <= _ttl(params) / 2 else None


def refuse_unknown_keys(params: RendezvousParameters) -> None:
    """ValueError for the first setting that has no meaning, with the nearest that has."""
    if "password" in params.config:
        raise ValueError(
            "a password in --rdzv-conf can be read by every user of this machine: put it into a file and "
            "give password_file=PATH, or set ELASTIC_ETCD_PASSWORD"
        )
    backend = params.backend
    ours = {key for key in KEYS if backend in BELONGS.get(key, {backend})}
    known = ours | {alias for alias, meant in _ALIASES.items() if meant in ours}
    for key in params.config:
        if key not in known:
            meant = _ALIASES.get(key, key)
            if meant in BELONGS:
                others = " and ".join(sorted(BELONGS[meant]))
                raise ValueError(
                    f"rendezvous setting {key!r} is for the backend {others}, and this is {backend}: "
                    "leave it out"
                )
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(ours))}"
            raise ValueError(f"unknown rendezvous setting {key!r}: {hint}")


def setting(params: RendezvousParameters, key: str) -> str:
    """A setting that is text, under its own name or an alias; "" where it is not given."""
    for name in (key, *(alias for alias, meant in _ALIASES.items() if meant == key)):
        if params.get(name) not in (None, ""):
            return str(params.get(name))
    return ""
