"""Hypothesis strategies for the values of the membership protocol.

They are weighted towards the states in which something is decided: node records that speak of the round
at hand or of its neighbours, members that have just vanished, times around the ends of the timers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from elastic.rendezvous.core.formation import member_of
from elastic.rendezvous.core.member import Self, Stance
from elastic.rendezvous.core.memory import Memory, observe
from elastic.rendezvous.core.records import Failure, Leader, Node, Outcome, Phase, Round, Terminal, Want
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import CLOSED, LEADER, ROUND, Fact, Seen, View, node_key

IDS = ("a", "b", "c", "d", "e")
ROUND_NUMBER = 7


def node(node_id: str, want: Want = Want.JOINING, round_number: int = 0, **changes: object) -> Node:
    """A node's record; its name is its id unless told otherwise."""
    plain = Node(
        node_id=node_id,
        want=want,
        round=round_number,
        name=node_id,
        address=f"{node_id}.test",
        hostname=node_id,
        pid=1,
        local_world_size=1,
        role="default",
        master_port=29500 + ord(node_id[-1]),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def world_of(*ids: str) -> Round:
    """A formed round of these nodes."""
    members = tuple(member_of(node(i)) for i in ids)
    return Round(
        incarnation=1, round=ROUND_NUMBER, phase=Phase.FORMED, min_nodes=1, max_nodes=5, world=members
    )


@dataclass(frozen=True, slots=True)
class LeaderState:
    """All that a leader decides from."""

    view: View
    memory: Memory
    rules: Rules
    now: float


orders = st.sampled_from([IDS, ("b", "a", "d", "e", "c"), IDS[::-1], ("e", "c", "d", "b", "a")])
rules_values = st.builds(
    lambda least, more: Rules(min_nodes=least, max_nodes=least + more), st.integers(1, 3), st.integers(0, 2)
)


@st.composite
def rounds(draw: st.DrawFn, rules: Rules, *, same_bounds: bool = True) -> Round:
    """An open or a formed round, with a world that the rules allow."""
    phase = draw(st.sampled_from(Phase))
    ids = draw(orders)
    sizes = range(rules.min_nodes, min(rules.max_nodes, len(IDS)) + 1)
    size = draw(st.sampled_from(sizes if phase is Phase.FORMED else (0, 0, *sizes)))
    return Round(
        incarnation=draw(st.integers(1, 2)),
        round=ROUND_NUMBER,
        phase=phase,
        min_nodes=rules.min_nodes,
        max_nodes=rules.max_nodes if same_bounds else rules.max_nodes + 1,
        world=tuple(member_of(node(i)) for i in ids[:size]),
        nodes_waiting=draw(st.sampled_from((0, 0, 0, 1, 2))) if phase is Phase.FORMED else 0,
        nodes_leaving=draw(st.sampled_from((0, 0, 1))) if phase is Phase.FORMED else 0,
        finished=(0,) if phase is Phase.FORMED and draw(st.integers(0, 5)) == 5 else (),
        failures=draw(st.integers(0, 2)),
        cause="so",
    )


@st.composite
def failures(draw: st.DrawFn) -> Failure:
    return Failure(
        round=draw(st.sampled_from((ROUND_NUMBER - 1, ROUND_NUMBER - 1, ROUND_NUMBER - 2))),
        rank=0,
        local_rank=0,
        exit_code=3,
        message="it failed",
        final=draw(st.booleans()),
    )


@st.composite
def node_records(draw: st.DrawFn, node_id: str, committed: Round | None) -> Node:
    """What a node may say when this round is committed; now and then, something out of place."""
    number = 1 if committed is None else committed.round
    member = committed is not None and committed.rank_of(node_id) is not None
    usual: list[tuple[Want, int]]
    if committed is None:
        usual = [(Want.JOINING, 1)]
    elif not committed.formed:
        usual = [(Want.JOINING, number)] * 3 + (
            [(Want.ACTIVE, number - 1), (Want.STOPPING, number), (Want.DONE, number - 1)] if member else []
        )
    elif member:
        usual = [(Want.ACTIVE, number)] * 3 + [(Want.DONE, number)] * 2 + [(Want.STOPPING, number + 1)] * 2
    else:
        usual = [(Want.SPARE if committed.full else Want.WAITING, number)]
    odd = [(want, number + step) for want in Want for step in (-1, 0, 1)]
    want, said = draw(st.sampled_from(usual) if draw(st.integers(0, 5)) else st.sampled_from(odd))
    failure = None
    if want in (Want.JOINING, Want.STOPPING) and draw(st.integers(0, 2)) == 0:
        failure = draw(failures())
    name = draw(st.sampled_from((node_id,) * 12 + IDS))
    record = node(node_id, want, said, failure=failure, name=name)
    return replace(record, draining=want is Want.ACTIVE and draw(st.integers(0, 3)) == 0)


@st.composite
def views(draw: st.DrawFn, rules: Rules, *, closed: bool = True) -> View:
    """What a leader named "a" may know."""
    committed = draw(st.one_of(st.none(), *(rounds(rules, same_bounds=b) for b in (True, True, True, False))))
    facts: list[Fact] = []
    revision = 10
    for node_id in draw(orders):
        if draw(st.integers(0, 4)):
            revision += 1
            record = draw(node_records(node_id, committed))
            facts.append(Fact(node_key(node_id), revision, Seen(record, revision, revision)))
    facts.append(Fact(LEADER, 50, Seen(Leader(node_id="a"), 50, 50)))
    if committed is not None:
        facts.append(Fact(ROUND, 60, Seen(committed, 60, 5)))
    if closed and draw(st.integers(0, 15)) == 0:
        end = Terminal(outcome=Outcome.FAILED, reason="so", exit_code=1, incarnation=1, round=1, node_id="a")
        facts.append(Fact(CLOSED, 70, Seen(end, 70, 70)))
    return View().learn(facts)


@st.composite
def gatherings(draw: st.DrawFn, rules: Rules) -> View:
    """An open round for which nearly everybody is ready."""
    worlds: list[tuple[str, ...]] = [(), ("a", "b"), ("c", "a")]
    members = draw(st.sampled_from(worlds))
    number = draw(st.integers(rules.min_nodes, len(IDS)))
    opened = replace(
        world_of(*members), phase=Phase.OPEN, min_nodes=rules.min_nodes, max_nodes=rules.max_nodes
    )
    facts = [Fact(LEADER, 50, Seen(Leader(node_id="a"), 50, 50)), Fact(ROUND, 60, Seen(opened, 60, 5))]
    for revision, node_id in enumerate([*members, *(i for i in IDS if i not in members)][:number], 10):
        failure = draw(st.sampled_from((None, draw(failures())))) if node_id in members else None
        record = node(node_id, Want.JOINING, ROUND_NUMBER, failure=failure)
        facts.append(Fact(node_key(node_id), revision, Seen(record, revision, revision)))
    return View().learn(facts)


@st.composite
def leader_states(draw: st.DrawFn) -> LeaderState:
    """A leader that saw the world whole at second 100, and sees what it sees now some time later."""
    rules = draw(rules_values)
    view = draw(st.one_of(views(rules), gatherings(rules)))
    memory = Memory()
    now = 100.0
    seen = view.round
    if seen is not None and draw(st.booleans()):
        whole = view
        for member in seen.record.world:
            # Who says that it leaves says nothing else after that.
            last = () if member.node_id in view.nodes else (Want.LEAVING,)
            want = draw(st.sampled_from((Want.ACTIVE, Want.ACTIVE, Want.DONE, *last)))
            record = node(member.node_id, want, seen.record.round)
            whole = whole.learn([Fact(node_key(member.node_id), 80, Seen(record, 80, 80))])
        memory = observe(memory, whole, rules, now)
        now += draw(st.sampled_from((0.0, 0.5)))
    memory = observe(memory, view, rules, now)
    now += draw(st.sampled_from((0.0, 0.5, rules.rejoin_grace, rules.settle, rules.last_call, 100.0)))
    return LeaderState(view, observe(memory, view, rules, now), rules, now)


@st.composite
def member_states(draw: st.DrawFn) -> tuple[Self, View]:
    """A node "a" with any stance, and a view of the control records and perhaps its own."""
    worlds: list[tuple[str, ...]] = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b", "d"), ()]
    ids = draw(st.sampled_from(worlds))
    phase = Phase.FORMED if draw(st.integers(0, 3)) > 0 and ids else Phase.OPEN
    committed = replace(world_of(*ids), phase=phase, max_nodes=draw(st.sampled_from((2, 4, 5))))
    facts = [Fact(ROUND, 60, Seen(committed, 60, 5))] if draw(st.integers(0, 7)) else []
    if draw(st.booleans()):
        own = draw(node_records("a", committed if facts else None))
        facts.append(Fact(node_key("a"), 70, Seen(replace(own, name="a"), 70, 70)))
    stance = draw(st.sampled_from(Stance))
    if draw(st.booleans()):
        stance = Stance.JOINING
    ran = ROUND_NUMBER + draw(st.sampled_from((0, -1, 1)))
    if stance is Stance.JOINING and draw(st.booleans()):
        ran = draw(st.sampled_from((0, ROUND_NUMBER - 1)))
    world = None
    if stance in (Stance.RUNNING, Stance.DONE, Stance.STOPPING):
        same = phase is Phase.FORMED and "a" in ids and draw(st.booleans())
        world = committed if same else replace(world_of("a", "b", "e"), round=ran)
        ran = world.round
    return Self(template=node("a"), stance=stance, round=ran, world=world, cause="so"), View().learn(facts)
