"""What happens to the document of a run, told as news; and this node's heartbeat in it.

One thread, which waits for the document to change. It tells what has, raises the counter of this node's
lease in good time, and ends the leases of others whose counters stand still. It decides nothing else.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

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
from elastic.utils.backoff import jitter

from .document import Document, Stored
from .ledger import Contended, Held, Ledger
from .pulse import Pulses, delay_of

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0

log = logging.getLogger("elastic.rendezvous")


class Lease:
    """The lease that this node holds, if it does: set by who asks for it, read by who keeps it alive."""

    def __init__(self) -> None:
        self.id = ""


class DocumentNews:
    """Tells `inbox`. `start` it once the node has read what it follows; `close` joins the thread."""

    def __init__(
        self,
        ledger: Ledger,
        inbox: Inbox,
        *,
        lease: Lease,
        follows: Callable[[str], bool],
        ttl: float,
        interval: float,
        closing: threading.Event,
    ) -> None:
        """`follows` says whether news of a key is wanted, now; `interval` is the time between heartbeats.

        The thread ends when `closing` is set, at the latest with the call in which it then is.
        """
        self._ledger = ledger
        self._inbox = inbox
        self._lease = lease
        self._follows = follows
        self._interval = interval
        self._closing = closing
        self.failure: Exception | None = None
        """What ended the thread, which should not have."""
        self._pulses = Pulses(ttl=ttl, longest_gap=1.5 * interval)
        self.told: Document | None = None
        """The newest document whose news has been told."""
        self._ended = ""
        self._silent = False
        self._beat_due = time.monotonic() + self._pause()
        self._thread = threading.Thread(target=self._run, name="elastic-rendezvous-news", daemon=True)

    def start(self, known: Document | None) -> None:
        """Begin, with what happened after that document; None: nothing could be read."""
        self.told = known
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread, which has been told to end."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as e:
            # A backend of somebody else's may raise anything. The owner hears of it with its next call.
            self.failure = e
            self._inbox.put(Missed(f"no news of the rendezvous can be told any more: {e!r}"))

    def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            obstacle = self._try_turn()
            if obstacle is None:
                pause = _FIRST_PAUSE
            elif not self._closing.is_set():
                if not self._silent:
                    self._silent = True
                    self._inbox.put(Interrupted(str(obstacle)))
                self._closing.wait(pause * jitter(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _try_turn(self) -> Exception | None:
        """Make a turn; why no news can come, where that is so."""
        try:
            self._turn()
        except Contended as e:
            log.debug("the heartbeat comes late: %s", e)
        except (BackendUnavailable, RendezvousStateError) as e:
            return e
        return None

    def _turn(self) -> None:
        """Tell what has happened, do what is due, and wait for the next of either."""
        lease = self._lease.id  # before the reading, or one granted since would seem to have ended
        held = self._ledger.read()
        self._tell(held.document, lease)
        held = self._tend(held, lease)
        if self._silent:
            self._silent = False
            self._inbox.put(Resumed())
        now = time.monotonic()
        times = [self._beat_due, self._pulses.due(own=lease, delay=self._delay(held.document, lease))]
        self._ledger.wait(held.token, min(t for t in times if t is not None) - now)

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
        now = time.monotonic()
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
            self._beat_due = now + self._pause()
        for ended in sorted(stale.keys() - after.document.leases.keys()):
            log.info("the lease %s has ended: its node was silent for %g s", ended, self._pulses.ttl)
        self._tell(after.document, lease)
        return after

    def _pause(self) -> float:
        """Seconds to the next heartbeat. Nodes that joined together would else write together for ever."""
        return self._interval * jitter(0.6, 1.0)

    def _delay(self, document: Document, lease: str) -> float:
        leader = document.records.get(LEADER)
        leads = leader is not None and leader.lease == lease
        return delay_of(lease, document.leases, leads=leads, step=self._interval / 4)


def seen_in(key: str, stored: Stored) -> Seen[Record]:
    """The record at a key; RendezvousStateError where its value is none."""
    kind = kind_of(key)
    if kind is None:
        raise RendezvousStateError(f"{key!r} is no key of a record of this release of elastic")
    return Seen(decode(key, json.dumps(stored.value).encode(), kind), stored.modified, stored.created)
