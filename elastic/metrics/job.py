"""What an agent tells of its job, and what that adds up to.

`JobMetrics` is the one object that the agent, its rendezvous and its etcd client tell facts to. It counts and
adds; it has no thread, needs no package and renders nothing: an exporter asks for a `snapshot` when somebody
wants to see it. So telling a fact costs about a microsecond, whether anyone looks or not.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from elastic.metrics.snapshot import (
    ETCD_BOUNDS,
    RENDEZVOUS_BOUNDS,
    WORKER_STATES,
    Distribution,
    JobFacts,
    RestartCause,
    Snapshot,
)

OPERATIONS = 16
"""How many operations of etcd are told apart; further ones are counted as ``other``."""
SECTIONS = 16
"""Of how many sections the durations are shown: as many as one worker may report, with its steps."""


class _Time(enum.Enum):
    """What the time of a job is spent on."""

    STARTING = "the workers have not run yet"
    TRAINING = "the workers run"
    LOST = "the workers were stopped or failed, and do not run again yet"
    OVER = "the workers are done"


class JobMetrics:
    """The metrics of one agent. Every method may be called from any thread, and returns at once.

    `clock` gives monotonic seconds.
    """

    def __init__(self, facts: JobFacts, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._facts = facts
        self._clock = clock
        self._lock = threading.Lock()
        self._in_world = False
        self._round = self._world_size = self._nodes = self._waiting = self._spares = 0
        self._worlds_entered = self._leases_lost = self._etcd_outages = 0
        self._healthy = True
        self._workers: dict[str, int] = {}
        self._durations: dict[str, dict[int, float]] = {}
        self._restarts = Counter[RestartCause]()
        self._rendezvous = Distribution.empty(RENDEZVOUS_BOUNDS)
        self._lease_renewed: float | None = None
        self._away_since: float | None = None
        self._away_for = 0.0
        self._etcd_requests: dict[str, Distribution] = {}
        self._etcd_failures = Counter[str]()
        self._time = _Time.STARTING
        self._since = clock()
        self._spent = dict.fromkeys(_Time, 0.0)

    # -- the world --------------------------------------------------------------------------------

    def entered_world(self, *, round: int, world_size: int, nodes: int, seconds: float) -> None:  # noqa: A002
        """This node is in a world of so many workers on so many nodes, after `seconds` of rendezvous."""
        with self._lock:
            self._in_world = True
            self._round, self._world_size, self._nodes = round, world_size, nodes
            self._worlds_entered += 1
            self._rendezvous = self._rendezvous.plus(seconds)

    def left_world(self) -> None:
        """This node is in no world: it waits for the next one, or is done."""
        with self._lock:
            self._in_world = False
            self._world_size = self._nodes = 0

    def membership(self, *, waiting: int, spares: int) -> None:
        """So many nodes wait to be let into the world, and so many have no place in it."""
        with self._lock:
            self._waiting, self._spares = waiting, spares

    # -- the workers ------------------------------------------------------------------------------

    def workers_started(self) -> None:
        """The workers of this node run: from here on time is training time."""
        self._spend(_Time.TRAINING)

    def restarting(self, cause: RestartCause) -> None:
        """The workers of this node do no more work, and will be started anew: from here on time is lost."""
        cause = RestartCause(cause)
        with self._lock:
            self._restarts[cause] += 1
        self._spend(_Time.LOST)

    def workers_done(self) -> None:
        """The workers of this node will not run again."""
        self._spend(_Time.OVER)

    def workers(self, states: Mapping[str, int]) -> None:
        """How many workers of this node are in each state. ValueError for one not in `WORKER_STATES`."""
        if unknown := sorted(states.keys() - set(WORKER_STATES)):
            raise ValueError(f"unknown states of workers {unknown}: known are {', '.join(WORKER_STATES)}")
        with self._lock:
            self._workers = dict(states)

    def typical_durations(self, seconds: Mapping[str, Mapping[int, float]]) -> None:
        """How long the latest sections of each worker typically took, by name and rank. Forgets others."""
        with self._lock:
            self._durations = {name: dict(seconds[name]) for name in sorted(seconds)[:SECTIONS]}

    def health_changed(self, *, healthy: bool) -> None:
        """The workers of this node are found healthy, or no longer."""
        with self._lock:
            self._healthy = healthy

    # -- etcd -------------------------------------------------------------------------------------

    def lease_renewed(self) -> None:
        """etcd has just confirmed this node's lease, an old one or a new one."""
        with self._lock:
            self._lease_renewed = self._clock()

    def lease_lost(self) -> None:
        """etcd no longer knows this node's lease. Its age is that of the last confirmation, as before."""
        with self._lock:
            self._leases_lost += 1

    def etcd_away(self) -> None:
        """etcd does not answer any more."""
        with self._lock:
            if self._away_since is None:
                self._away_since = self._clock()
                self._etcd_outages += 1

    def etcd_back(self) -> None:
        """etcd answers again."""
        with self._lock:
            if self._away_since is not None:
                self._away_for += self._clock() - self._away_since
                self._away_since = None

    def etcd_answered(self, operation: str, *, seconds: float, failed: bool = False) -> None:
        """A request to etcd was answered, or `failed`, after `seconds`."""
        with self._lock:
            if operation not in self._etcd_requests and len(self._etcd_requests) >= OPERATIONS:
                operation = "other"
            before = self._etcd_requests.get(operation) or Distribution.empty(ETCD_BOUNDS)
            self._etcd_requests[operation] = before.plus(seconds)
            self._etcd_failures[operation] += failed

    # -- looking ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What it all adds up to now."""
        with self._lock:
            now = self._clock()
            spent = self._spent | {self._time: self._spent[self._time] + now - self._since}
            away = 0.0 if self._away_since is None else now - self._away_since
            return Snapshot(
                facts=self._facts,
                in_world=self._in_world,
                round=self._round,
                world_size=self._world_size,
                nodes=self._nodes,
                waiting=self._waiting,
                spares=self._spares,
                healthy=self._healthy,
                workers=dict(self._workers),
                durations=self._durations,
                worlds_entered=self._worlds_entered,
                restarts=dict(self._restarts),
                rendezvous=self._rendezvous,
                lease_age=None if self._lease_renewed is None else now - self._lease_renewed,
                leases_lost=self._leases_lost,
                etcd_away=self._away_since is not None,
                etcd_outages=self._etcd_outages,
                etcd_away_for=self._away_for + away,
                etcd_requests=dict(self._etcd_requests),
                etcd_failures=dict(self._etcd_failures),
                training=spent[_Time.TRAINING],
                lost=spent[_Time.LOST],
            )

    def _spend(self, kind: _Time) -> None:
        with self._lock:
            # Before workers have first run there is nothing to lose.
            if kind is _Time.LOST and self._time is _Time.STARTING:
                return
            now = self._clock()
            self._spent[self._time] += now - self._since
            self._time, self._since = kind, now
