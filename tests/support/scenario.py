"""Text scenarios: commands to a simulated world, and what came of each.

A file is a list of blocks. A block is one or more commands, a line ``----``, and the changes that
followed, one a line, in order; an empty line ends it. Lines that begin with ``#`` are comments.

==================================================  ================================================
``job 2:3 [restarts=1] [last-call=30] [settle=1]``  the rules; first, and once
``node a join [as=NAME] [nnodes=2:4] [token=T]``    a new agent
``tick 1.5s``                                       time goes by, timer by timer
``fail a [exit=3] [final]``, ``succeed a``          what happens to a's workers
``leave a``, ``close a``                            its agent is asked to leave, or to close the job
``drain a``                                         it is asked to leave when its workers have saved
``crash a``, ``pause a``, ``resume a``              what happens to its agent
``cut a``, ``heal a``                               what happens to its network
``lose a``                                          a's next request gets no answer
``revoke a``, ``delete a``, ``wipe``                what somebody does to etcd
``down``, ``up``, ``elect``                         etcd goes away, comes back, has a new leader
==================================================  ================================================

Commands that name a node may name several, and it happens to all of them at once.
Nodes act in the order of their names, and all there is to do is done before time goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import NODES
from support.simulated_network import Reply
from support.simulated_node import SimulatedNode
from support.simulator import World

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Block:
    """Comments and commands as written, and the output that is expected of them."""

    head: tuple[str, ...]
    expected: tuple[str, ...]

    @property
    def commands(self) -> list[str]:
        return [line for line in self.head if line and not line.startswith("#")]


def parse(text: str) -> Iterator[Block]:
    """The blocks of a file."""
    head: list[str] = []
    expected: list[str] | None = None
    for line in [*text.splitlines(), ""]:
        if expected is not None and not line:
            yield Block(tuple(head), tuple(expected))
            head, expected = [], None
        elif expected is not None:
            expected.append(line)
        elif line == SEPARATOR:
            expected = []
        else:
            head.append(line)
    left = [line for line in head if line]
    if left:
        raise ValueError(f"no {SEPARATOR!r} after {left[-1]!r}")


def replay(text: str) -> str:
    """The same file with the output that the commands have now."""
    scenario = Scenario()
    blocks = [
        "\n".join([*block.head, SEPARATOR, *scenario.run(block.commands)]).lstrip("\n")
        for block in parse(text)
    ]
    return "\n\n".join(blocks) + "\n"


class Scenario:
    """One file's world."""

    def __init__(self) -> None:
        self._world: World | None = None

    @property
    def world(self) -> World:
        if self._world is None:
            raise ValueError("a scenario begins with `job MIN:MAX`")
        return self._world

    def run(self, commands: list[str]) -> list[str]:
        """Carries out the commands of one block; the changes that followed."""
        start = 0 if self._world is None else len(self._world.trace)
        for command in commands:
            self._do(command)
            self.world.drain()
        lines = (line[10:] for line in self.world.trace[start:])
        return [line.removeprefix("etcd: ") for line in lines if not line.endswith(": starts")]

    def _do(self, command: str) -> None:
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if verb == "job":
            self._job(plain[0], options)
        elif verb == "node":
            self._join(plain[0], options)
        elif verb == "tick":
            self.world.pass_time(float(plain[0].removesuffix("s")))
        elif verb in _OF_ETCD:
            _OF_ETCD[verb](self.world)
        elif verb == "lose":
            self.world.reply = _lose_next(self.world, plain[0])
        elif verb == "fail":
            for node_id in plain:
                if node_id != "final":
                    node = self.world.nodes[node_id]
                    node.fail(exit_code=int(options.get("exit", "1")), final="final" in plain or None)
        else:
            for node_id in plain:
                _VERBS[verb](self.world, self.world.nodes[node_id])

    def _job(self, nnodes: str, options: dict[str, str]) -> None:
        rules = replace(
            _bounds(Rules(min_nodes=1, max_nodes=1), nnodes),
            last_call=float(options.get("last-call", "30")),
            settle=float(options.get("settle", "1")),
            job_token=options.get("token", ""),
        )
        self._world = World(rules, max_restarts=int(options.get("restarts", "3")))

    def _join(self, node_id: str, options: dict[str, str]) -> None:
        rules = replace(self.world.rules, job_token=options.get("token", self.world.rules.job_token))
        if "nnodes" in options:
            rules = _bounds(rules, options["nnodes"])
        self.world.start(node_id, name=options.get("as"), rules=rules)


def _bounds(rules: Rules, nnodes: str) -> Rules:
    least, most = nnodes.split(":")
    return replace(rules, min_nodes=int(least), max_nodes=int(most))


def _lose_next(world: World, victim: str) -> Callable[[str], Reply]:
    def reply(node_id: str) -> Reply:
        if node_id != victim:
            return Reply.ARRIVES
        world.reply = lambda _: Reply.ARRIVES
        return Reply.LOST

    return reply


def _revoke(world: World, node: SimulatedNode) -> None:
    assert node.lease is not None
    world.place.revoke(node.lease)


def _set(*, paused: bool | None = None, cut: bool | None = None) -> Callable[[World, SimulatedNode], None]:
    def change(_: World, node: SimulatedNode) -> None:
        node.paused = node.paused if paused is None else paused
        node.cut = node.cut if cut is None else cut

    return change


_OF_ETCD: dict[str, Callable[[World], None]] = {
    "wipe": World.wipe,
    "down": World.go_down,
    "up": World.come_back,
    "elect": World.elect,
}
_VERBS: dict[str, Callable[[World, SimulatedNode], None]] = {
    "crash": lambda _, node: node.crash(),
    "leave": lambda _, node: node.leave(),
    "drain": lambda _, node: node.drain(),
    "succeed": lambda _, node: node.succeed(),
    "close": lambda _, node: node.close("a caller closed it"),
    "delete": lambda world, node: world.place.delete(NODES + node.node_id, "by an operator"),
    "revoke": _revoke,
    "pause": _set(paused=True),
    "resume": _set(paused=False),
    "cut": _set(cut=True),
    "heal": _set(cut=False),
}
