"""What must hold of every history, as slow and obvious checks for tests and the simulator.

`History` is told of each committed write to the shared records and of each world that a node was
given; each method raises `Violation` on the first thing that must never happen. The letters are
those of the protocol: one world per round, ranks are a permutation within bounds, a round is never
used again, closed is final.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .records import Phase, Round, Terminal


class Violation(AssertionError):
    """The protocol did something that it must never do."""


@dataclass(slots=True)
class History:
    worlds: dict[int, Round] = field(default_factory=dict)
    last: Round | None = None
    closed: dict[int, Terminal] = field(default_factory=dict)

    def round_written(self, record: Round) -> None:
        """A write of the round record was committed."""
        if record.incarnation in self.closed:
            raise Violation(f"S4: round {record.round} was written after the job was closed")
        last = self.last
        if last is not None:
            if record.round < last.round:
                raise Violation(f"S3: round {record.round} after round {last.round}")
            if record.round == last.round and last.formed and not record.formed:
                raise Violation(f"S3: round {record.round} was opened again")
            if record.incarnation < last.incarnation:
                raise Violation(f"S3: incarnation {record.incarnation} after {last.incarnation}")
        self.last = record
        if record.phase is Phase.FORMED:
            self._formed(record)

    def _formed(self, record: Round) -> None:
        ids = [member.node_id for member in record.world]
        if len(set(ids)) != len(ids):
            raise Violation(f"S2: a node is twice in the world of round {record.round}")
        if not record.min_nodes <= len(ids) <= record.max_nodes:
            raise Violation(f"S2: {len(ids)} nodes in a world of {record.min_nodes} to {record.max_nodes}")
        first = self.worlds.setdefault(record.round, record)
        same = (first.world, first.master_addr, first.master_port, first.incarnation)
        if same != (record.world, record.master_addr, record.master_port, record.incarnation):
            raise Violation(f"S1: round {record.round} has two worlds")

    def close_written(self, record: Terminal) -> None:
        """A write of the terminal record was committed."""
        if record.incarnation in self.closed:
            raise Violation(f"S4: incarnation {record.incarnation} was closed twice")
        self.closed[record.incarnation] = record

    def world_given(self, node_id: str, record: Round) -> None:
        """A node came back from the rendezvous with this world."""
        formed = self.worlds.get(record.round)
        if formed is None or formed.world != record.world or formed.master_port != record.master_port:
            raise Violation(f"S1: {node_id} was given a world of round {record.round} that was never formed")
        if record.rank_of(node_id) is None:
            raise Violation(f"S2: {node_id} was given a world that it is not in")
