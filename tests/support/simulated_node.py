"""One simulated node: the real shell with the real protocol over a simulated backend, and an agent on top.

The shell has no thread here: the world gives it a turn when its inbox holds something or its time has
come. The agent does what the real one does with a situation: it starts "workers", which are a number
(the round that they belong to), stops them, joins again, and goes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from elastic.rendezvous.core.actions import Commit, Put
from elastic.rendezvous.core.invariants import Violation
from elastic.rendezvous.core.member import Standing
from elastic.rendezvous.core.protocol import Protocol
from elastic.rendezvous.core.records import Failure, Node, Round, Want
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.shell import Shell
from elastic.rendezvous.situation import Situation
from support.simulated_network import Clock, Network, SimulatedInbox
from support.simulated_place import Place

GOODBYE = 5.0
"""Seconds for which an agent that goes waits for its goodbye to be heard."""

SAVING = 10.0
"""Seconds for which an agent that will go waits for its workers to save."""

_REQUESTS_AT_ONCE = 100
"""More commits than this in one turn are a loop that never ends."""

_STARTS_WORKERS_ANEW = (Want.JOINING, Want.WAITING, Want.SPARE)
_WORLDLY = (Standing.CURRENT, Standing.SUPERSEDED)


class Crashed(BaseException):
    """The node has crashed in the middle of its turn: nothing may catch this on the way out of it."""


class Phase(enum.Enum):
    """What the agent is doing."""

    JOINING = "waits for a world"
    RUNNING = "runs workers"
    STOPPING = "stops them"
    DONE = "has workers that succeeded"
    LEAVING = "goes"


class SimulatedNode:
    """A node that joins as soon as it is made. `gone` says why it went; None while it is there."""

    def __init__(
        self,
        node_id: str,
        name: str,
        *,
        rules: Rules,
        place: Place,
        network: Network,
        clock: Clock,
        max_restarts: int,
        failsafe: float | None = None,
    ) -> None:
        template = Node(
            node_id=node_id,
            want=Want.JOINING,
            round=0,
            name=name,
            address=f"{node_id}.test",
            hostname=f"{name}.test",
            pid=1,
            local_world_size=1,
            role="default",
            master_port=0,
        )
        self.node_id = node_id
        self.name = name
        self.network = network
        self.clock = clock
        self.max_restarts = max_restarts
        self.phase = Phase.JOINING
        self.workers: int | None = None
        self.succeeded: int | None = None
        self.gone: str | None = None
        self.paused = False
        self.busy = False
        self._requests = 0
        self.protocol = Protocol(template, rules)
        self.access = place.access(node_id, clock=clock, checks=self._check)
        self.inbox = SimulatedInbox()
        self.shell = Shell(
            self.protocol,
            self.access.backend,
            failsafe=failsafe,
            clock=clock.now,
            spread=network.spread,
            inbox=self.inbox,
        )
        self._ports = 29500
        self._number = 0
        self._world: Round | None = None
        self._how = ""
        self._goes_by = 0.0
        self._saved_by: float | None = None
        self._join()

    # -- what the world can do with it ------------------------------------------------------------

    @property
    def cut(self) -> bool:
        return self.access.cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        self.access.cut = cut

    @property
    def lease(self) -> object | None:
        return self.access.lease

    @property
    def awake(self) -> bool:
        """Whether its shell and its agent can do anything at present."""
        return self.listens and not self.busy

    @property
    def listens(self) -> bool:
        """Whether news can come to it, also while its shell is in the middle of a call."""
        return self.gone is None and not self.paused

    @property
    def reachable(self) -> bool:
        return self.awake and self.access.reachable

    @property
    def has_news(self) -> bool:
        return self.listens and self.access.has_news

    @property
    def wants_turn(self) -> bool:
        """Whether its shell has something to do now."""
        if not self.awake or self.shell.situation.gone:
            return False
        due = self.shell.due
        return bool(self.inbox.items) or (due is not None and due <= self.clock.now())

    @property
    def times(self) -> list[float]:
        """When something becomes due on this node even if nothing happens, by the world's clock."""
        if not self.listens:
            return []
        going = self._goes_by if self.phase is Phase.LEAVING else self._saved_by
        shell = None if self.shell.situation.gone else self.shell.due
        own = [self.clock.in_world(t) for t in (shell, going) if t is not None and self.awake]
        return [*own, *self.access.times]

    def crash(self) -> None:
        self.workers = None
        self.gone = "crashed"

    def turn(self) -> None:
        """The shell takes in what is in its inbox, and acts until there is nothing to do."""
        self.busy = True
        self._requests = 0
        try:
            self.shell.turn()
        except Crashed:
            return
        finally:
            self.busy = False

    def hear(self, *, lease_first: bool = False, which: Callable[[int], int] = lambda _: 0) -> None:
        """One piece of news comes in."""
        try:
            self.access.take_news(lease_first=lease_first, which=which)
        except Crashed:
            return

    def _check(self, commit: Commit) -> None:
        self._requests += 1
        if self._requests > _REQUESTS_AT_ONCE:
            raise Violation(f"L1: {self.node_id} writes without end: {commit.step}, {commit.why}")
        if self.workers is None:
            return
        for put in commit.operations:
            record = put.record if isinstance(put, Put) else None
            if isinstance(record, Node) and record.want in _STARTS_WORKERS_ANEW:
                raise Violation(f"S5: {self.node_id} joins, and still runs workers of round {self.workers}")

    # -- the agent --------------------------------------------------------------------------------

    def agent(self) -> bool:
        """One step of the agent's own; whether there was one to make."""
        if self.gone is not None or self.paused:
            return False
        now = self.shell.situation
        if now.error is not None:
            raise Violation(f"L4: {self.node_id} fails: {now.error}")
        if self.phase is Phase.LEAVING:
            return self._take_leave(now)
        if now.verdict.standing not in _WORLDLY:
            self._go(_ENDINGS[now.verdict.standing])
        elif self._saved_by is not None and self._has_saved(now):
            self._go("left")
        elif self.phase is Phase.JOINING:
            return self._look_for_world(now)
        elif self.phase is Phase.STOPPING:
            self.workers = None
            self._join()
        elif now.verdict.standing is Standing.SUPERSEDED:
            self._regroup(now.verdict.why)
        elif self.phase is Phase.RUNNING and now.nodes_waiting > 0:
            self._regroup("nodes wait")
        elif self.phase is Phase.RUNNING and now.nodes_leaving > 0 and self._saved_by is None:
            self._regroup("a node leaves")
        else:
            return False
        return True

    def _join(self) -> None:
        self.phase = Phase.JOINING
        self._ports += 1
        self._number = self.shell.join(master_port=self._ports)

    def _look_for_world(self, now: Situation) -> bool:
        refusal = now.refusal
        if refusal is not None:
            self._go(f"refused: {refusal if isinstance(refusal, str) else refusal.reason}")
        elif now.joins == self._number and now.world is not None:
            self._start(now.world)
        else:
            return False
        return True

    def _start(self, world: Round) -> None:
        if self.workers is not None:
            raise Violation(f"S5: {self.node_id} is given round {world.round}, and runs round {self.workers}")
        self.network.given(self.node_id, world)
        self.phase, self.workers, self._world = Phase.RUNNING, world.round, world

    def _regroup(self, cause: str, failure: Failure | None = None) -> None:
        self.phase = Phase.STOPPING
        self.shell.post(lambda protocol: protocol.regroup(cause, failure))

    @property
    def running(self) -> bool:
        return self.phase is Phase.RUNNING

    def fail(self, *, exit_code: int = 1, final: bool | None = None) -> None:
        """A worker fails. `final` defaults to what the agent's restart budget says."""
        world = self._world
        assert world is not None
        failure = Failure(
            round=world.round,
            rank=world.rank_of(self.node_id) or 0,
            local_rank=0,
            exit_code=exit_code,
            message=f"a worker of {self.name} failed with exit code {exit_code}",
            final=world.failures >= self.max_restarts if final is None else final,
        )
        self._regroup(failure.message, failure)

    def succeed(self) -> None:
        self.phase, self.succeeded = Phase.DONE, self.workers
        self.shell.post(lambda protocol: protocol.succeed())

    def drain(self) -> None:
        """It will leave when its workers, and those of the others, have saved."""
        if self.phase is not Phase.LEAVING and self._saved_by is None:
            self._saved_by = self.clock.now() + SAVING
            self.shell.post(lambda protocol: protocol.drain("it was asked to"))

    def _has_saved(self, now: Situation) -> bool:
        """The workers save as soon as the others are told, too; or there are none, or time is over."""
        others = now.nodes_leaving > 0 or now.verdict.standing is Standing.SUPERSEDED
        return others or self.phase is not Phase.RUNNING or self.clock.now() >= (self._saved_by or 0.0)

    def leave(self) -> None:
        if self.phase is not Phase.LEAVING:
            self._go("left")

    def close(self, reason: str) -> None:
        """A caller of the API closes the job."""
        self.shell.post(lambda protocol: protocol.close(reason))

    # -- how it goes ------------------------------------------------------------------------------

    def _go(self, how: str) -> None:
        self.workers = None
        self.phase, self._how = Phase.LEAVING, how
        self._goes_by = self.clock.now() + GOODBYE
        self.shell.post(lambda protocol: protocol.leave("it was asked to"))

    def _take_leave(self, now: Situation) -> bool:
        if not now.gone and self.clock.now() < self._goes_by:
            return False
        unheard = "" if now.heard else ", without a goodbye"
        self.network.say(f"{self.node_id}: {self._how}{unheard}")
        self.gone = self._how
        self.access.backend.close()
        return True


_ENDINGS = {
    Standing.CLOSED: "ended",
    Standing.EVICTED: "evicted",
    Standing.LOST: "gave up",
}
