"""What one node learns from its backend, on the way to its protocol.

Sorts out what cannot be read, what cannot be true, and why the node's own record has vanished. Belongs
to the rendezvous loop, and is used by its thread alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from .backends.api import BackendWiped, Learned, MembershipBackend, Reading
from .core.changes import LeaseLost, Observer, changes, missing
from .core.member import Stance
from .core.protocol import Protocol
from .core.records import Record
from .core.view import NODES, Fact, Seen, View
from .unreadable import UnreadableKeys

log = logging.getLogger("elastic.rendezvous")


class Knowledge:
    """Tells `protocol` what `backend` says. The methods that read raise the errors of the backend.

    `tell` is told of the changes that this comes to.
    """

    def __init__(self, protocol: Protocol, backend: MembershipBackend, *, tell: Observer) -> None:
        self.unreadable = UnreadableKeys()
        self._protocol = protocol
        self._backend = backend
        self._tell = tell
        self._vanished = False

    def learn(self, news: Learned) -> None:
        for fact in news.facts:
            self.unreadable.mended(fact.key)
        self._learn(lambda: self._protocol.learn(news.facts), news.facts)

    def learn_own(self, facts: tuple[Fact, ...]) -> None:
        """What a transaction of this node wrote."""
        self._learn(lambda: self._protocol.learn(facts), facts)

    def learn_reading(self, reading: Reading, *, nodes: bool) -> None:
        """The answer to a read of what is followed, with all `nodes` or none; BackendWiped if impossible."""
        scope = self._backend.scope(nodes=nodes)
        found = self._found(reading, scope)
        self.unreadable.note_reading(scope, reading.unreadable)
        self._learn(lambda: self._protocol.learn_all(reading.revision, scope, found))

    def followed(self, reading: Reading) -> None:
        """All node records, of which news follows; BackendWiped if they cannot be."""
        self.unreadable.note(reading.unreadable)
        self._protocol.followed(reading.revision, self._found(reading, (NODES,)))
        view = self._protocol.view
        if view.round is None:  # later leaders find nodes of whom the ones before have told
            for change in changes(View(), view, leads=True):
                self._tell(change)
        for gone in missing(view):
            self._tell(gone)

    def find_out(self, *, known_away: bool) -> None:
        """Why the record has vanished. Asked until there is an answer, or it would be written again."""
        protocol = self._protocol
        if not self._vanished or protocol.me.stance in (Stance.ABSENT, Stance.LEAVING):
            return
        lives = self._backend.lease_lives()
        self._vanished = False
        if lives:
            if protocol.evict():
                log.error(
                    "this node is evicted and takes no further part, as %s no longer has its record",
                    self._backend.place,
                )
        else:
            log.log(
                logging.INFO if known_away else logging.WARNING,
                "this node's record is gone with its lease; registering again",
            )
            self._tell(LeaseLost("its record was gone"))
            protocol.lease_lost()

    def _found(self, reading: Reading, scope: Collection[str]) -> dict[str, Seen[Record]]:
        """What a reading says. Of a key that cannot be read, what was known of it before still stands."""
        known = self._protocol.view
        kept = {key: known.entries[key] for key in reading.unreadable if key in known.entries}
        found = {**kept, **reading.found}
        if known.contradicted_by(reading.revision, scope, found):
            raise BackendWiped(
                f"{self._backend.place} is older than it was: its data was lost, or restored from a backup"
            )
        return found

    def _learn(self, learn: Callable[[], None], facts: Sequence[Fact] = ()) -> None:
        """Learn, and take note where this node's own record has vanished by it."""
        protocol = self._protocol
        view, leads = protocol.view, protocol.leads and protocol.following
        before = view.node(protocol.node_id)
        learn()
        for change in changes(view, protocol.view, facts, leads=leads):
            self._tell(change)
        self._vanished = self._vanished or before is not None
        self._vanished = self._vanished and protocol.view.node(protocol.node_id) is None
