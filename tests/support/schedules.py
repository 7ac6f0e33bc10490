"""Seeded random schedules: what happens to a simulated world, and in which order.

Everything comes from one `random.Random`, so a seed tells the whole story. A schedule has three parts:
steps with faults, in any order that the network allows; then no more faults, and the living must settle
into the right world; then the job ends, everybody goes, and a second run of the same id must form.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from elastic.rendezvous.core.invariants import Violation
from elastic.rendezvous.core.view import CLOSED, NODES
from support.simulated_backend import Etcd, SimulatedBackend
from support.simulated_document import DRIFT, DocumentStore
from support.simulated_network import Reply
from support.simulated_node import SimulatedNode
from support.simulated_place import LEASE, Place
from support.simulator import World, rules_of, trouble

PLACES: dict[str, type[Place]] = {"etcd": Etcd, "document": DocumentStore}
"""The kinds of place that a schedule can be run over, by name."""

_SIGNS = (
    *("waiting=", "SPARE", "was overtaken", "arrives late", "answer arrives", "final"),
    *("met another document", "no answer to tend", "no answer to grant", "in time"),
)
_REPLIES = (Reply.ARRIVES, Reply.LOST, Reply.ANSWER_LOST, Reply.LATE)


class Schedule:
    """One seed's world over a place of that kind, and what is done to it. `seen` counts the faults."""

    def __init__(self, seed: int, *, over: type[Place] = Etcd, steps: int = 250, wipes: bool = True) -> None:
        self.seed = seed
        self.steps = steps
        self.random = random.Random(seed)
        least = self.random.randint(1, 3)
        self.world = World(
            rules_of(least, least + self.random.randint(0, 2)),
            over=over,
            max_restarts=self.random.randint(0, 3),
        )
        self._on_etcd = over is Etcd
        if isinstance(self.world.place, DocumentStore):
            self.world.place.beat_every(self.random.choice((LEASE / 10, LEASE / 3, LEASE / 2)))
        self.seen: Counter[str] = Counter()
        self._started = 0
        lossy = self.random.choice((0.0, 0.02, 0.1))
        weights = (1 - lossy, lossy / 3, lossy / 3, lossy / 3)
        self.world.reply = lambda _: self.random.choices(_REPLIES, weights)[0]
        self.world.spread = self.random.uniform
        # How often others act between two requests of one node.
        self._crossing = self.random.choice((0.0, 0.05, 0.3) if self._on_etcd else (0.05, 0.3, 0.7))
        self.world.meanwhile = self._meanwhile
        self._failsafe = self.random.choice((None, None, 4 * LEASE))
        self._fault_rate = self.random.choice((0.02, 0.05, 0.12))
        # How often the nodes come to rest between faults: without that few schedules get far.
        self._calm = self.random.choice((0.0, 0.3, 0.8))
        self._wipes = wipes

    def run(self) -> None:
        """Raises `Violation`, with a trace to read, where the protocol does what it must not."""
        try:
            self._run()
        except Violation as violation:
            raise Violation(trouble(self.world, self.seed, violation)) from violation

    def _run(self) -> None:
        for _ in range(self.random.randint(1, self.world.rules.max_nodes + 1)):
            self._start()
        for _ in range(self.steps):
            self._step()
        self._heal()
        self.world.pass_time(self.world.place.settling)
        self._complete()
        self.world.check_settled()
        self._finish()
        self._second_run()

    # -- steps ------------------------------------------------------------------------------------

    def _step(self) -> None:
        """One thing happens. Mostly a node goes on; the slower a node is picked, the later its news."""
        if self.random.random() < self._fault_rate:
            self._fault()
            if self.random.random() < self._calm:
                self.world.pass_time(self.random.choice((0.0, 1.5, 4.0)))
            return
        if self.world.network.late and self.random.random() < 0.2:
            self.world.deliver_late()
            return
        if not self.world.living or self.random.random() < 0.15:
            self.world.advance(self.random.choice((0.01, 0.1, 0.6, 1.1, 3.0)))
            return
        self._go_on()

    def _go_on(self) -> None:
        """One node does something."""
        listening = [node for node in self.world.living if node.listens]
        if not listening:
            return
        node = self.random.choice(listening)
        choice = self.random.random()
        if choice < 0.25 and node.awake:
            node.agent()
        elif choice < 0.55 and node.has_news:
            for _ in range(self.random.randint(1, 6)):
                if node.has_news:
                    node.hear(lease_first=self.random.random() < 0.5, which=self.random.randrange)
        elif node.wants_turn:
            node.turn()

    def _meanwhile(self) -> None:
        """Between two requests of a node. What happens then happens to others, or to etcd."""
        if self.random.random() >= self._crossing:
            return
        if self.random.random() < self._fault_rate:
            self.random.choice((self._crash, self._revoke, self._cut, self._elect, self._evict))()
        self._cross()
        if not self._on_etcd and self.random.random() < 0.1:
            self._let_return()
        if not self._on_etcd and self.random.random() < 0.2:
            # Late answers, and once in a while a node that is held up for longer than a lease lasts.
            self.world.advance(self.random.choices((0.01, 0.3, 1.5, LEASE + 2), (8, 4, 2, 1))[0])

    def _let_return(self) -> None:
        """One that could not be heard is back, and speaks at once: perhaps while others give it up."""
        node = self._pick(lambda n: n.paused or n.cut)
        if node is not None:
            self.world.say(f"{node.node_id}: is back")
            node.paused = node.cut = False
            node.hear()

    def _cross(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self._go_on()

    def _contend(self) -> None:
        """That others come first is no fault."""
        if self.random.random() < self._crossing:
            self._cross()

    def _fault(self) -> None:
        faults: list[tuple[Callable[[], None], float]] = [
            (self._start, 3),
            (self._crash, 3),
            (self._restart, 2),
            (self._replace, 1.5),
            (self._leave, 2),
            (self._drain, 2),
            (self._pause, 2),
            (self._cut, 2),
            (self._revoke, 2 if self._on_etcd else 0.5),
            (self._flicker, 1),
            (self._fail, 5),
            (self._succeed, 3),
            (self._evict, 0.5),
            (self._close, 0.3),
            (self._wipe, 0.6 if self._wipes else 0),
        ]
        of_etcd: list[tuple[Callable[[], None], float]] = [
            (self._doubt, 1),
            (self._elect, 1),
            (self._compact, 2),
            (self._resume, 1),
        ]
        of_a_store: list[tuple[Callable[[], None], float]] = [
            (self._restart_host, 0.6 if self._wipes else 0),
            (self._wake, 2),
            (self._sleep, 1),
        ]
        faults += of_etcd if self._on_etcd else of_a_store
        fault = self.random.choices([f for f, _ in faults], [weight for _, weight in faults])[0]
        self.seen[fault.__name__.strip("_")] += 1
        fault()

    def _pick(self, wanted: Callable[[SimulatedNode], bool] = lambda _: True) -> SimulatedNode | None:
        found = [node for node in self.world.living if wanted(node)]
        return self.random.choice(found) if found else None

    def _start(self, name: str | None = None) -> None:
        if len(self.world.living) <= self.world.rules.max_nodes + 1:
            self._started += 1
            self.world.start(
                f"n{self._started:02d}",
                name=name,
                failsafe=self._failsafe,
                offset=self.random.uniform(0.0, 1e6),
                rate=self.random.uniform(1 - DRIFT, 1 + DRIFT),
            )

    def _crash(self) -> None:
        node = self._pick()
        if node is not None:
            self.world.say(f"{node.node_id}: crashes")
            node.crash()

    def _restart(self) -> None:
        """A crash, and a new agent of the same name before the lease has ended."""
        node = self._pick()
        if node is not None:
            self.world.say(f"{node.node_id}: crashes, to be started anew")
            node.crash()
            self._start(node.name)

    def _replace(self) -> None:
        """A new agent takes the name of one that is away, and may come back."""
        node = self._pick(lambda n: n.paused or n.cut)
        if node is not None:
            self._start(node.name)

    def _leave(self) -> None:
        node = self._pick()
        if node is not None:
            self.world.say(f"{node.node_id}: is asked to leave")
            node.leave()

    def _drain(self) -> None:
        node = self._pick(lambda n: n.running)
        if node is not None:
            self.world.say(f"{node.node_id}: is asked to leave once its workers have saved")
            node.drain()

    def _pause(self) -> None:
        """Pauses a running node, or lets a paused one go on."""
        node = self._pick()
        if node is not None:
            node.paused = not node.paused
            self.world.say(f"{node.node_id}: {'is paused' if node.paused else 'goes on'}")
            if node.paused and self.random.random() < 0.5:
                self._outlive_lease()

    def _outlive_lease(self) -> None:
        """So much time goes by that a lease ends which nobody keeps alive."""
        if self._on_etcd:
            self.world.advance(LEASE / 2)
            self.world.advance(LEASE / 2 + 1)
        else:  # which takes others that watch it all the time
            self.world.pass_time(LEASE + 3)

    def _cut(self) -> None:
        node = self._pick()
        if node is not None:
            node.cut = not node.cut
            self.world.say(f"{node.node_id}: {'is cut off' if node.cut else 'is connected again'}")
            if node.cut and self.random.random() < 0.3:
                self._outlive_lease()

    def _revoke(self) -> None:
        node = self._pick(lambda n: n.lease is not None)
        if node is not None and node.lease is not None:
            self.world.say(f"{node.node_id}: its lease is revoked by mistake")
            self.world.place.revoke(node.lease)

    def _doubt(self) -> None:
        node = self._pick(lambda n: n.lease is not None and n.reachable)
        if node is not None and isinstance(node.access, SimulatedBackend):
            node.access.doubt_lease()

    def _elect(self) -> None:
        self.world.elect()

    def _flicker(self) -> None:
        """etcd is away for short whiles, again and again, with all its leases kept over them."""
        for _ in range(self.random.randint(1, 4)):
            self.world.go_down()
            self.world.pass_time(self.random.choice((0.3, 1.5, 4.0)))
            self.world.come_back()
            self.world.pass_time(self.random.choice((0.0, 0.2, 1.5)))

    def _compact(self) -> None:
        node = self._pick(lambda n: n.reachable and n.has_news)
        if node is not None and isinstance(node.access, SimulatedBackend):
            self.world.say(f"{node.node_id}: misses news, and reads again")
            node.access.miss_news()

    def _resume(self) -> None:
        node = self._pick(lambda n: n.reachable)
        if node is not None and isinstance(node.access, SimulatedBackend):
            node.access.hear_again(self.random.randint(1, 8))

    def _fail(self) -> None:
        node = self._pick(lambda n: n.running and not n.paused)
        if node is not None:
            self.world.say(f"{node.node_id}: a worker fails")
            node.fail()

    def _succeed(self) -> None:
        node = self._pick(lambda n: n.running and not n.paused)
        if node is not None:
            self.world.say(f"{node.node_id}: its workers succeed")
            node.succeed()

    def _evict(self) -> None:
        node = self._pick()
        if node is not None:
            self.world.say(f"{node.node_id}: an operator deletes its record")
            self.world.place.delete(NODES + node.node_id, "by an operator")

    def _close(self) -> None:
        node = self._pick(lambda n: n.reachable)
        if node is not None:
            self.world.say(f"{node.node_id}: closes the job")
            node.close("a caller closed it")

    def _wipe(self) -> None:
        self.world.wipe()

    def _restart_host(self) -> None:
        """The store is away with all that it held, and comes back empty."""
        self.world.go_down()
        self.world.wipe()
        self.world.pass_time(self.random.choice((0.0, 1.5, LEASE / 2, 2 * LEASE)))
        self.world.come_back()

    def _wake(self) -> None:
        """A node looks although nothing has happened."""
        node = self._pick(lambda n: n.listens)
        if node is not None:
            node.hear()

    def _sleep(self) -> None:
        """Nobody does anything for longer than a lease lasts, as on machines that share a processor."""
        self.world.say("all: are paused for a while")
        self.world.advance(LEASE + 2)

    # -- after the faults -------------------------------------------------------------------------

    def _heal(self) -> None:
        self.world.say("-- no more faults")
        self.world.reply = lambda _: Reply.ARRIVES
        self.world.meanwhile = (lambda: None) if self._on_etcd else self._contend
        for node in self.world.nodes.values():
            node.paused = node.cut = False
        while self.world.network.late:
            self.world.deliver_late()

    def _complete(self) -> None:
        """Enough nodes for a world, so that there must be one. Those of an ended run leave first."""
        if CLOSED in self.world.records.data:
            self.world.check_settled()
        short = self.world.rules.min_nodes - len(self.world.living)
        for _ in range(max(0, short)):
            self._start()
        self.world.pass_time(self.world.place.settling)
        self._count()

    def _count(self) -> None:
        """What the schedule has reached, so that a test can tell that it does reach it."""
        history = self.world.history
        self.seen["rounds"] += len(history.worlds)
        self.seen["failures counted"] += sum(1 for world in history.worlds.values() if world.failures)
        for terminal in history.closed.values():
            self.seen[f"ended: {terminal.outcome.value}"] += 1
        for how in ("ended", "evicted", "left", "gave up", "crashed"):
            self.seen[f"gone: {how}"] += sum(1 for node in self.world.nodes.values() if node.gone == how)
        self.seen["settled with a world"] += any(node.workers is not None for node in self.world.living)
        for step, count in self.world.writes.items():
            self.seen[f"step: {step}"] += count
        for sign in _SIGNS:
            self.seen[f"said: {sign}"] += sum(1 for line in self.world.trace if sign in line)

    def _finish(self) -> None:
        for node in self.world.living:
            if node.running:
                node.succeed()
        self.world.pass_time(self.world.place.settling)
        if self.world.living:
            raise Violation(f"L4: {[n.node_id for n in self.world.living]} are there after the job's success")

    def _second_run(self) -> None:
        before = self.world.committed
        self.world.say("-- a second run")
        rules = self.world.rules
        self.world.rules = replace(rules, min_nodes=rules.min_nodes + 1, max_nodes=rules.max_nodes + 1)
        for _ in range(self.world.rules.min_nodes):
            self._start()
        self.world.pass_time(self.world.place.settling)
        self.world.check_settled()
        after = self.world.committed
        if before is not None and (after is None or after.round <= before.round):
            raise Violation("S3: a second run did not go on counting rounds")
