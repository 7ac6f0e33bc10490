"""What the rendezvous loop hands to those who wait: worlds, refusals, errors, and the situation at large.

Puts together what the protocol and the contact with the backend say, and publishes it. Belongs to the
loop, and is used by its thread alone.
"""

from __future__ import annotations

from .contact import Contact
from .core.member import Stance, Standing, Verdict
from .core.protocol import Protocol
from .core.records import Round, Terminal
from .errors import RendezvousError
from .situation import Board, Situation
from .unreadable import UnreadableKeys


class Delivery:
    """Publishes on `board`."""

    def __init__(
        self, board: Board, *, protocol: Protocol, contact: Contact, unreadable: UnreadableKeys
    ) -> None:
        self._board = board
        self._protocol = protocol
        self._contact = contact
        self._unreadable = unreadable
        self._joins = 0
        self._world: Round | None = None

    @property
    def situation(self) -> Situation:
        return self._board.situation

    def expect(self, number: int) -> None:
        """A wish to join, of that number, is taken in: a world that is delivered from now on is for it."""
        self._joins, self._world = number, None

    def fail(self, error: RendezvousError) -> None:
        """End every wait with this error, if none has done so before."""
        if self.situation.error is None:
            self.publish(error=error)

    def deliver(self) -> None:
        """Hand the world that has formed, or why there can be none, to those who wait."""
        protocol = self._protocol
        if protocol.me.stance is not Stance.JOINING:
            self.publish()
            return
        obstruction = self._unreadable.obstruction(protocol.node_id, veteran=protocol.me.round > 0)
        if obstruction is not None:
            self.fail(obstruction)
            return
        world = protocol.world
        if world is None:
            self.publish(refusal=protocol.refusal())
            return
        self._world = world
        protocol.run(world)
        self.publish()

    def publish(
        self,
        *,
        ready: bool | None = None,
        refusal: Terminal | str | None = None,
        error: RendezvousError | None = None,
        gone: bool = False,
        heard: bool = False,
    ) -> None:
        """Tell what is known now. `ready` and `error` hold for good, the others until the next time."""
        before, protocol = self._board.situation, self._protocol
        verdict = protocol.verdict
        if self._contact.lost and verdict.standing in (Standing.CURRENT, Standing.SUPERSEDED):
            verdict = Verdict(Standing.LOST, self._contact.lost)
        seen = protocol.view.round
        world = seen.record if seen is not None and verdict.standing is Standing.CURRENT else None
        self._board.publish(
            Situation(
                ready=before.ready if ready is None else ready,
                connected=not self._contact.outage,
                verdict=verdict,
                view=protocol.view,
                joins=self._joins,
                world=self._world,
                nodes_waiting=0 if world is None else world.nodes_waiting,
                nodes_leaving=0 if world is None else world.nodes_leaving,
                refusal=refusal,
                error=error or before.error,
                gone=gone,
                heard=heard,
            )
        )
