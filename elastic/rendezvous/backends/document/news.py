"""What happens to the document of a run, told as news; and this node's heartbeat in it.

`DocumentNews` tells what has happened, raises the counter of this node's lease in good time, and ends the
leases of others whose counters stand still. It decides nothing else, and goes on turn by turn: `NewsThread`
makes the turns as the document changes.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elastic.rendezvous.backends.api import (
    BackendUnavailable,
    Inbox,
    Interrupted,
    Learned,
    LeaseEnded,
    Missed,
    Resumed,
    Unreadable,
)
from elastic.rendezvous.codec import decode, kind_of
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import LEADER, Fact, Seen
from elastic.rendezvous.errors import RendezvousStateError
from elastic.utils import backoff

from .document import Document, Stored
from .ledger import Contended, Held, Ledger
from .pace import Pace
from .pulse import Pulses, delay_of, patience_of

_FIRST_PAUSE = 0.1

log = logging.getLogger("elastic.rendezvous")


class Lease:
    """The lease that this node holds, if it does: set by who asks for it, read by who keeps it alive."""

    def __init__(self) -> None:
        self.id = ""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until then, or until the document is not `held` any more (None: whatever it is)."""

    until: float
    held: Held | None


class DocumentNews:
    """Tells `inbox`. `begin` once the node has read what it follows; then make a `turn` after each `Idle`."""

    def __init__(
        self,
        ledger: Ledger,
        inbox: Inbox,
        *,
        lease: Lease,
        follows: Callable[[str], bool],
        ttl: float,
        interval: float,
        pace: Pace,
    ) -> None:
        """`follows` says whether news of a key is wanted, now; `interval` is the time between heartbeats.

        That is `ttl / 2` at most.
        """
        self._ledger = ledger
        self._inbox = inbox
        self._lease = lease
        self._follows = follows
        self._interval = interval
        self._pace = pace
        self._patience = patience_of(ttl=ttl, interval=interval)
        self._pulses = Pulses(ttl=ttl, longest_gap=self._patience.gap)
        self.told: Document | None = None
        """The newest document whose news has been told."""
        self._ended = ""
        self._silent = False
        self._obstructed = False
        self._obstacles = 0  # in a row
        self._beat_due = pace.now() + self._next_beat()

    def begin(self, known: Document | None) -> None:
        """Go on from that document; None: nothing could be read."""
        self.told = known

    @property
    def over(self) -> bool:
        """Whether the node goes, so that no more turns are to be made."""
        return self._pace.ended

    def turn(self) -> Idle:
        """Tell what has happened, and do what is due."""
        if not self._obstructed:
            self._obstacles = 0
        self._obstructed = False
        try:
            return self._turn()
        except Contended as e:
            log.debug("the heartbeat comes late: %s", e)
            return Idle(self._pace.now(), None)
        except (BackendUnavailable, RendezvousStateError) as e:
            return self.obstructed(e)

    def obstructed(self, obstacle: Exception) -> Idle:
        """No news can come for now: say so, once, and try again after a pause that grows."""
        self._obstructed = True
        if not (self._silent or self._pace.ended):
            self._silent = True
            self._inbox.put(Interrupted(str(obstacle)))
        longest = backoff.limit(self._obstacles, first=_FIRST_PAUSE, longest=self._patience.pause)
        pause = longest * self._pace.spread(0.5, 1.0)
        self._obstacles += 1
        return Idle(self._pace.now() + pause, None)

    def wait(self, idle: Idle) -> None:
        """Block until the next turn is due, or the pace ends."""
        if self._pace.ended:
            return  # the document that was to end the wait may be the one that is held
        if idle.held is not None:
            try:
                self._ledger.wait(idle.held.token, idle.until - self._pace.now())
                return
            except BackendUnavailable as e:
                idle = self.obstructed(e)
        self._pace.pause(max(0.0, idle.until - self._pace.now()))

    def fail(self, reason: Exception) -> None:
        """There are no more turns."""
        self._inbox.put(Missed(f"no news of the rendezvous can be told any more: {reason!r}"))

    def touch(self) -> None:
        """Make another document, as nothing else ends a wait for one before its time."""
        try:
            self._ledger.change(Document.touched, seconds=self._interval)
        except (BackendUnavailable, RendezvousStateError) as e:
            log.debug("the last wait for news ends with its time: %s", e)
        except Exception as e:
            # A backend of somebody else's may raise anything. Nobody hears of it later: the node goes.
            log.warning("the rendezvous backend is broken, so its last wait ends with its time: %r", e)

    def _turn(self) -> Idle:
        lease = self._lease.id  # before the reading, or one granted since would seem to have ended
        held = self._ledger.read()
        self._tell(held.document, lease)
        held = self._tend(held, lease)
        if self._silent:
            self._silent = False
            self._inbox.put(Resumed())
        ends = self._pulses.due(own=lease, delay=self._delay(held.document, lease))
        times = [self._beat_due, ends, self._pace.now() + self._patience.idle]
        return Idle(min(t for t in times if t is not None), held)

    # -- what has happened ------------------------------------------------------------------------

    def _tell(self, document: Document, lease: str) -> None:
        told, self.told = self.told, document
        if told is None:
            self._inbox.put(Missed(f"the rendezvous state at {self._ledger.key!r} can be read now"))
        elif document.history != told.history or document.revision < told.revision:
            self._ended = lease  # with all else
            self._inbox.put(Missed("the records of the run were lost, and begin anew", wiped=True))
        elif document.revision > told.revision:
            self._tell_changes(told, document)
        if lease and lease not in document.leases and lease == self._lease.id and lease != self._ended:
            self._ended = lease
            self._inbox.put(LeaseEnded("this node was silent for longer than its lease lasts"))

    def _tell_changes(self, told: Document, document: Document) -> None:
        facts: list[Fact] = []
        for change in document.changes_since(told):
            if not self._follows(change.key):
                continue
            try:
                seen = None if change.stored is None else seen_in(change.key, change.stored)
                facts.append(Fact(change.key, change.revision, seen))
            except RendezvousStateError as e:
                self._inbox.put(Unreadable(change.key, e))
        if facts:
            self._inbox.put(Learned(tuple(facts)))

    # -- what is due ------------------------------------------------------------------------------

    def _tend(self, held: Held, lease: str) -> Held:
        """Raise this node's own counter, and end the leases whose counters have stood still."""
        now = self._pace.now()
        self._pulses = self._pulses.after(held.document.leases, now)
        stale = self._pulses.stale(now, own=lease, delay=self._delay(held.document, lease))
        beats = now >= self._beat_due
        if not (beats or stale):
            return held

        def tended(document: Document) -> Document:
            document = document.expired(stale)
            renewed = document.renewed(lease) if beats else None
            return document if renewed is None else renewed

        after = self._ledger.change(tended, seconds=self._interval).held
        if beats:
            self._beat_due = now + self._next_beat()
        for ended in sorted(stale.keys() - after.document.leases.keys()):
            log.info("the lease %s has ended: its node was silent for %g s", ended, self._pulses.ttl)
        self._tell(after.document, lease)
        return after

    def _next_beat(self) -> float:
        """Seconds to the next heartbeat. Nodes that joined together would else write together for ever."""
        return self._interval * self._pace.spread(0.6, 1.0)

    def _delay(self, document: Document, lease: str) -> float:
        leader = document.records.get(LEADER)
        leads = leader is not None and leader.lease == lease
        return delay_of(lease, document.leases, leads=leads, step=self._interval / 4)


class NewsThread:
    """Makes the turns of `news` until its pace ends, at the latest with the call in which it then is."""

    def __init__(self, news: DocumentNews) -> None:
        self.news = news
        self.failure: Exception | None = None
        """What ended the thread, which should not have."""
        self._thread = threading.Thread(target=self._run, name="elastic-rendezvous-news", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cut_short(self) -> None:
        """End the thread's wait in a store that stays open, once the pace has ended."""
        if self._thread.is_alive():
            self.news.touch()

    def join(self) -> None:
        """Wait for the thread, which has been told to end."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self.news.over:
                self.news.wait(self.news.turn())
        except Exception as e:
            # A backend of somebody else's may raise anything. The owner hears of it with its next call.
            self.failure = e
            self.news.fail(e)


def seen_in(key: str, stored: Stored) -> Seen[Record]:
    """The record at a key; RendezvousStateError where its value is none."""
    kind = kind_of(key)
    if kind is None:
        raise RendezvousStateError(f"{key!r} is no key of a record of this release of elastic")
    return Seen(decode(key, json.dumps(stored.value).encode(), kind), stored.modified, stored.created)
