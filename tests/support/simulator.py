"""A deterministic world of simulated nodes over a simulated place for their records, and the checks on them.

`World` owns the time, the nodes and the history. Whoever drives it decides the order of things: the
seeded schedules of :mod:`support.schedules` at random, the text scenarios in the order of names. Each
write and each world that a node is given is checked at once against the invariants; `check_settled`
holds what is left, once faults have ended, against the promise that a world forms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elastic.rendezvous.core.invariants import History, Violation
from elastic.rendezvous.core.records import Leader, Node, Record, Round, Terminal
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import CLOSED, HISTORY, LEADER, NODES, ROUND, Fact
from support.fake_etcd import FakeEtcd
from support.simulated_backend import Etcd
from support.simulated_network import Clock, Network, Reply
from support.simulated_node import Crashed, SimulatedNode
from support.simulated_place import LEASE, Place

_ACTIONS_AT_ONCE = 400
"""More actions than this without time going on are a loop that never ends."""


def describe(record: Record) -> str:
    """A record in a few words."""
    if isinstance(record, Node):
        text = f"{record.want.value} round {record.round}"
        if record.rank is not None:
            text += f" rank {record.rank}"
        text += " draining" if record.draining else ""
        if record.failure is not None:
            final = ", final" if record.failure.final else ""
            text += f" (exit {record.failure.exit_code} in round {record.failure.round}{final})"
        return text
    if isinstance(record, Round):
        names = " ".join(member.node_id for member in record.world)
        text = f"{record.round} {record.phase.value} [{names}]"
        text += f" waiting={record.nodes_waiting}" if record.nodes_waiting else ""
        text += f" leaving={record.nodes_leaving}" if record.nodes_leaving else ""
        text += f" finished={','.join(map(str, record.finished))}" if record.finished else ""
        text += f" failures={record.failures}" if record.failures else ""
        text += f" incarnation={record.incarnation}" if record.incarnation > 1 else ""
        return f"{text}: {record.cause}"
    if isinstance(record, Terminal):
        return f"{record.outcome.value} exit {record.exit_code}: {record.reason}"
    assert isinstance(record, Leader)
    return record.node_id


@dataclass(slots=True)
class World:
    """`rules` are those of nodes that are not given their own, and `over` is the kind of place for records.

    `reply` decides what becomes of each request of a node, `meanwhile` is called ahead of it (and may let
    other nodes act), and `spread` decides how long a node's pauses are.
    """

    rules: Rules
    over: type[Place] = Etcd
    max_restarts: int = 3
    reply: Callable[[str], Reply] = lambda _: Reply.ARRIVES
    meanwhile: Callable[[], None] = lambda: None
    spread: Callable[[float, float], float] = lambda _, most: most
    now: float = 0.0
    trace: list[str] = field(default_factory=list)
    nodes: dict[str, SimulatedNode] = field(default_factory=dict)
    history: History = field(default_factory=History)
    before: dict[int, Round] = field(default_factory=dict)
    writes: Counter[str] = field(default_factory=Counter)
    place: Place = field(init=False)
    network: Network = field(init=False)

    def __post_init__(self) -> None:
        self.network = Network(
            clock=lambda: self.now,
            reply=self._reply,
            meanwhile=self._meanwhile,
            given=self._given,
            say=self.say,
            spread=self._spread,
            sleep=self._sleep,
        )
        self.place = self.over(FakeEtcd(self._written), self.network)

    @property
    def records(self) -> FakeEtcd:
        """What is there."""
        return self.place.records

    def _reply(self, node_id: str) -> Reply:
        return self.reply(node_id)

    def _spread(self, least: float, most: float) -> float:
        return self.spread(least, most)

    def _meanwhile(self, node_id: str) -> None:
        self.meanwhile()
        if self.nodes[node_id].gone is not None:
            raise Crashed

    def _sleep(self, node_id: str, seconds: float) -> None:
        self.advance(seconds)
        self._meanwhile(node_id)

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now:8.2f}  {text}")

    def start(
        self,
        node_id: str,
        *,
        name: str | None = None,
        rules: Rules | None = None,
        failsafe: float | None = None,
        offset: float = 0.0,
        rate: float = 1.0,
    ) -> SimulatedNode:
        node = SimulatedNode(
            node_id,
            name or node_id,
            rules=rules or self.rules,
            place=self.place,
            network=self.network,
            clock=Clock(self.network.clock, offset, rate),
            max_restarts=self.max_restarts,
            failsafe=failsafe,
        )
        self.nodes[node_id] = node
        self.say(f"{node_id}: starts" + ("" if node.name == node_id else f" as {node.name}"))
        return node

    @property
    def living(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.gone is None]

    @property
    def committed(self) -> Round | None:
        record = self.records.get(ROUND)
        return record if isinstance(record, Round) else None

    def wipe(self) -> None:
        """All data are lost. Rounds that nobody knows of any more may then be used again."""
        self.say(f"{self.place.name}: loses its data")
        self.place.wipe()
        self.before.update({world.round: world for world in self.history.worlds.values()})
        self.history = History()

    # -- checks -----------------------------------------------------------------------------------

    def _written(self, fact: Fact, why: str) -> None:
        record = None if fact.seen is None else fact.seen.record
        if not fact.key.startswith(HISTORY):
            self.say(
                f"{self.place.name}: {fact.key} "
                + (f"deleted ({why})" if record is None else describe(record))
            )
        self.writes[why] += 1
        if isinstance(record, Round) and fact.key == ROUND:
            self.history.round_written(record)
        elif isinstance(record, Terminal):
            self.history.close_written(record)

    def _given(self, node_id: str, world: Round) -> None:
        self.say(
            f"{node_id}: is given round {world.round}, rank {world.rank_of(node_id)} of {len(world.world)}"
        )
        if self.before.get(world.round) != world:  # else it was formed before a wipe, and is given late
            self.history.world_given(node_id, world)

    def check_settled(self) -> None:
        """Once nothing more happens: all who live run one world, or are spares beyond a full one."""
        living = {node.node_id: node for node in self.living}
        if not living:
            return
        committed = self.committed
        if CLOSED in self.records.data:
            raise Violation(f"L4: the job has ended, and {sorted(living)} are still there")
        if len(living) < self.rules.min_nodes:
            return
        if committed is None or not committed.formed:
            raise Violation(f"L1: {sorted(living)} live, and no world has formed")
        members = {member.node_id for member in committed.world}
        # A member that is done may go, and once there is one, newcomers wait for the end of the job.
        done = {i for i in members if self.nodes[i].succeeded == committed.round}
        if not members <= living.keys() | done:
            raise Violation(f"L2: {sorted(members - living.keys() - done)} are gone, and still in the world")
        if not done and len(members) != min(len(living), self.rules.max_nodes):
            raise Violation(f"L3: {len(members)} of {len(living)} nodes are in the world")
        for node_id, node in living.items():
            expected = committed.round if node_id in members else None
            if node.workers != expected:
                raise Violation(f"L1: {node_id} runs round {node.workers}, and should run {expected}")
            stored = self.records.data.get(NODES + node_id)
            if stored is None or not node.protocol.registered:
                raise Violation(f"L1: {node_id} is not registered")
            if not node.shell.situation.connected:
                raise Violation(f"L5: {node_id} takes {self.place.name} for away")
        if self.records.get(LEADER) is None:
            raise Violation("L1: nobody leads")
        self.place.check_settled([node.lease for node in living.values()])

    # -- driving ----------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Lets time pass: reachable nodes keep their leases alive, and others' leases end."""
        self.now += seconds
        for node in self.nodes.values():
            if node.reachable or node.busy:
                node.access.keep_alive()
        if not self.network.down:
            self.place.expire()

    def go_down(self) -> None:
        """The place answers nobody. No leases end meanwhile."""
        self.say(f"{self.place.name}: is away")
        self.network.down = True

    def come_back(self) -> None:
        self.network.down = False
        self.place.elect()

    def elect(self) -> None:
        """Etcd has a new leader: all leases last anew from now on."""
        self.place.elect()

    def deliver_late(self) -> None:
        """What was on its way for long arrives."""
        what, arrive = self.network.late.pop(0)
        self.say(f"{self.place.name}: {what} arrives late")
        arrive()

    def drain(self) -> None:
        """Everything that can happen without time going on, in the order of names."""
        for _ in range(_ACTIONS_AT_ONCE):
            moved = [self._turn(node) for node in sorted(self.living, key=lambda node: node.node_id)]
            if not any(moved):
                return
        raise Violation("L1: the nodes act without end")

    def _turn(self, node: SimulatedNode) -> bool:
        moved = False
        while node.has_news:
            node.hear()
            moved = True
        if node.wants_turn:
            node.turn()
            return True
        return node.agent() or moved

    def pass_time(self, seconds: float) -> None:
        """`seconds` go by, with all that happens meanwhile, each timer at its time."""
        end = self.now + seconds
        self.drain()
        while self.now < end:
            self.advance(max(0.0, self._next_time(end) - self.now))
            self.drain()

    def _next_time(self, end: float) -> float:
        dues = [t for node in self.living for t in node.times if t > self.now]
        unkept = [ends for ends in self.records.leases.values() if ends > self.now]
        return min([end, *dues, *unkept, self.now + LEASE / 3])


def trouble(world: World, seed: object, violation: Violation, *, lines: int = 70) -> str:
    """What a person needs to understand a violation: the seed, and the end of the trace."""
    skipped = len(world.trace) - lines
    head = [f"seed {seed}: {violation}"] + ([f"({skipped} lines before these)"] if skipped > 0 else [])
    return "\n".join([*head, *world.trace[-lines:]])


def rules_of(min_nodes: int, max_nodes: int) -> Rules:
    """Rules with a last call that does not make a simulated run long."""
    return replace(Rules(min_nodes=min_nodes, max_nodes=max_nodes), last_call=3.0)
