"""What the rendezvous loop does in one turn.

It takes in the news from the backend, the agent's wishes and the time; tells the protocol; and does what
that answers until there is nothing left to do. It decides nothing about membership, has no thread of
its own (:mod:`.shell` gives it one, a simulator gives it turns) and reads no clock but the one it is given.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import Protocol as Interface

from .backends.api import (
    BackendRefused,
    BackendUnavailable,
    BackendWiped,
    Interrupted,
    Learned,
    LeaseEnded,
    LeaseGone,
    MembershipBackend,
    Missed,
    News,
    Resumed,
    Unreadable,
)
from .contact import FIRST_PAUSE, LONGEST_PAUSE, Contact
from .core.actions import Action, Commit, FollowNodes, HoldLease, Rest, UnfollowNodes
from .core.changes import LeaseHeld, LeaseLost, NodeGone, Observer
from .core.member import Stance
from .core.protocol import Protocol
from .delivery import Delivery
from .errors import RendezvousConnectionError, RendezvousError
from .knowledge import Knowledge
from .situation import Board

log = logging.getLogger("elastic.rendezvous")

Wish = Callable[[Protocol], None]
Item = News | Wish | None

_TRIES = 3  # that are overtaken by other changes before there is a pause between them
_GOODBYES = 3  # of a node that goes and is not answered: one for each member of a usual cluster
_GOODBYE_SECONDS = 5.0  # after which there is no other: a scheduler that told the node to go waits for it
_NOTABLE = ("open", "close", "evict", "incarnate", "restore")


class Inbox(Interface):
    """Where news and wishes wait: what is needed of a `queue.SimpleQueue`."""

    def put(self, item: Item, /) -> None: ...

    def get(self, *, timeout: float) -> Item: ...

    def get_nowait(self) -> Item: ...


class Loop:
    """Carries out `protocol` over `backend`, and publishes on `board`. `turn`, again and again, at `due`."""

    def __init__(
        self,
        protocol: Protocol,
        backend: MembershipBackend,
        *,
        board: Board,
        inbox: Inbox,
        failsafe: float | None,
        clock: Callable[[], float],
        spread: Callable[[float, float], float],
        tell: Observer,
    ) -> None:
        self.stopping = False
        self._protocol = protocol
        self._backend = backend
        self._inbox = inbox
        self._clock = clock
        self._uniform = spread
        self._contact = Contact(
            place=backend.place,
            failsafe=failsafe,
            clock=clock,
            changed=self._contact_changed,
            back=protocol.backend_away,
            tell=tell,
        )
        self._observer = tell
        self._knowledge = Knowledge(protocol, backend, tell=tell)
        self._delivery = Delivery(
            board, protocol=protocol, contact=self._contact, unreadable=self._knowledge.unreadable
        )
        self._due: float | None = clock()
        self._upkeep_due = clock()
        self._reread = False
        self._overtaken = 0
        self._goodbyes = 0
        self._leaving_since: float | None = None

    def join(self, number: int, *, master_port: int) -> None:
        """The agent's wish to join of that number is being taken in. For the thread of the loop."""
        self._delivery.expect(number)
        self._protocol.join(master_port=master_port)

    def fail(self, error: RendezvousError) -> None:
        """End every wait with this error, if none has done so before."""
        self._delivery.fail(error)

    @property
    def due(self) -> float | None:
        """When the next turn is to be made even if nothing happens; None: not before something does."""
        times = [self._due, self._contact.patience_ends]
        if self._delivery.situation.ready:
            times.append(self._upkeep_due)
        return min((t for t in times if t is not None), default=None)

    def turn(self) -> None:
        """One round of the loop: take in what has happened, then act until there is nothing to do.

        Where nothing has, it waits for something to happen until `due`. Raises nothing that a
        backend may raise.
        """
        try:
            self._take_in()
            if self._leaving_since is None and self._protocol.me.stance is Stance.LEAVING:
                self._leaving_since = self._clock()
            if not self._delivery.situation.ready:
                self._begin()
            self._act()
            self._upkeep()
        except BackendUnavailable as e:
            # Also where nothing can have been done: an answer to the read is what ends the outage.
            self._reread = self._delivery.situation.ready
            self._retry_later(str(e))
        except BackendWiped as e:
            log.warning("%s; registering again", e)
            self._backend.unfollow_nodes()
            self._protocol.forget()
            self._reread = True
            self._due = self._clock()
        except LeaseGone as e:
            self._observer(LeaseLost(str(e)))
            self._protocol.lease_lost()
            self._due = self._clock()
        except BackendRefused as e:
            if self._protocol.me.stance in (Stance.JOINING, Stance.ABSENT):
                self.fail(RendezvousConnectionError(str(e)))
            self._retry_later(str(e), refused=True)

    def _begin(self) -> None:
        """Read the shared state for the first time."""
        self._knowledge.learn_reading(self._backend.start(self._inbox), nodes=False)
        self._delivery.publish(ready=True)

    def _take_in(self) -> None:
        """Wait for something to happen, then tell the protocol all that has."""
        due = self.due
        pause = LONGEST_PAUSE if due is None else max(0.0, due - self._clock())
        try:
            item = self._inbox.get(timeout=pause)
            while True:
                self._tell(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            self._contact.mind_silence()

    def _tell(self, item: Item) -> None:
        protocol = self._protocol
        if item is None:
            return
        if isinstance(item, Learned):
            self._knowledge.learn(item)
        elif isinstance(item, Unreadable):
            self._knowledge.unreadable.note({item.key: item.error})
        elif isinstance(item, Interrupted):
            self._contact.lose("watch", item.reason)
        elif isinstance(item, Resumed):
            self._contact.regain("watch")
        elif isinstance(item, Missed):
            log.info("%s; reading everything again", item.reason)
            if item.wiped:
                self._backend.unfollow_nodes()
                protocol.forget()
            self._reread = True
            # The watch that ended is made anew with the read.
            self._contact.regain("watch")
        elif isinstance(item, LeaseEnded):
            if item.silent:
                self._contact.lose("lease", item.reason)
            else:
                log.warning("%s; registering again", item.reason)
            self._observer(LeaseLost(item.reason))
            protocol.lease_lost()
        else:
            item(protocol)

    def _act(self) -> None:
        while not self.stopping:
            if self._reread:
                nodes = self._protocol.following
                self._knowledge.learn_reading(self._backend.read(nodes=nodes), nodes=nodes)
                self._reread = False
                self._contact.regain("call")
            self._knowledge.find_out(known_away=self._contact.broken)
            self._delivery.deliver()
            leaving = self._protocol.me.stance is Stance.LEAVING
            told = self._delivery.situation
            if not leaving and (told.error is not None or told.refusal is not None):
                self._due = None
                return
            now = self._clock()
            if self._contact.outage:
                self._protocol.backend_away(now)
            action = self._protocol.next_action(now)
            if isinstance(action, Commit) and self._knowledge.unreadable.forbid(action):
                action = Rest()
            if isinstance(action, Rest):
                self._due = action.until
                self._overtaken = 0
                # What was refused or unanswered is not wanted any more.
                self._contact.regain("call")
                last = self._own_departure() if leaving else None
                if leaving or self._protocol.evicted:
                    # Whoever has no part any more must not lead either.
                    self._backend.drop_lease()
                if leaving:
                    if last is not None:
                        self._observer(last)
                    self._delivery.publish(gone=True, heard=True)
                return
            self._perform(action)
            self._contact.regain("call")
            if isinstance(action, Commit) and self._overtaken >= _TRIES:
                doublings = min(self._overtaken - _TRIES, 8)  # more than reach the longest pause
                self._due = self._clock() + self._spread(FIRST_PAUSE * 2**doublings)
                return

    def _own_departure(self) -> NodeGone | None:
        """What a leader tells of itself when it goes, since the next one finds nothing of it."""
        protocol = self._protocol
        seen = protocol.view.node(protocol.node_id)
        if seen is None or not protocol.leads:
            return None
        return NodeGone(
            protocol.node_id, said_goodbye=True, cause=seen.record.cause, revision=seen.mod_revision
        )

    def _perform(self, action: Action) -> None:
        protocol, backend = self._protocol, self._backend
        if isinstance(action, HoldLease):
            backend.hold_lease()
            protocol.lease_held()
            self._observer(LeaseHeld())
            self._contact.regain("lease")
        elif isinstance(action, FollowNodes):
            self._knowledge.followed(backend.follow_nodes())
        elif isinstance(action, UnfollowNodes):
            backend.unfollow_nodes()
            protocol.unfollowed()
        elif isinstance(action, Commit):
            self._commit(action)

    def _commit(self, commit: Commit) -> None:
        result = self._backend.commit(commit)
        if not result.succeeded:
            log.debug("%s was overtaken by another change", commit.step)
            self._reread = True
            self._overtaken += 1
            return
        self._overtaken = 0
        log.log(logging.INFO if commit.step in _NOTABLE else logging.DEBUG, "%s: %s", commit.step, commit.why)
        self._protocol.committed(commit)
        self._knowledge.learn_own(result.facts)

    def _upkeep(self) -> None:
        now = self._clock()
        if now >= self._upkeep_due:
            self._upkeep_due = now + self._backend.upkeep(leads=self._protocol.leads)

    # -- trying again -----------------------------------------------------------------------------

    def _contact_changed(self) -> None:
        self._delivery.publish()

    def _retry_later(self, reason: str, *, refused: bool = False) -> None:
        """After a failed call: say so once, and try again after a pause or when something happens."""
        self._contact.lose("call", reason)
        if self._protocol.me.stance is Stance.LEAVING:
            self._say_goodbye_again(reason, refused=refused)
            return
        self._due = self._clock() + self._spread(self._contact.next_pause())
        # What is due from time to time waits as well: it would end the pause at once, again and again.
        self._upkeep_due = max(self._upkeep_due, self._due)

    def _say_goodbye_again(self, reason: str, *, refused: bool) -> None:
        """A node that goes asks one member after the other to hear it, and then goes without."""
        self._goodbyes += 1
        is_late = self._clock() >= (self._leaving_since or 0.0) + _GOODBYE_SECONDS
        if self._delivery.situation.ready and not refused and not is_late and self._goodbyes < _GOODBYES:
            # At once, without reading first: if the last word was heard, the guard of the next one says so.
            self._reread = False
            self._due = self._clock()
            return
        # A backend that takes no records may still end a lease, which says the same.
        heard = refused and self._backend.drop_lease()
        if not heard:
            log.warning("leaving without a goodbye: %s", reason)
        self._delivery.publish(gone=True, heard=heard)

    def _spread(self, pause: float) -> float:
        """A pause of about that length, so that nodes that failed together do not try again together."""
        return min(pause, LONGEST_PAUSE) * self._uniform(0.5, 1.0)
