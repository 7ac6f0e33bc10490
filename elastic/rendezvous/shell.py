"""The loop that carries out one node's protocol.

One thread. It waits for news from the backend, for the agent's wishes and for the time that the
protocol named; tells the protocol; and does what that answers until there is nothing left to do.
It decides nothing about membership. While the backend is away it keeps trying with a growing pause,
and says so once each way.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

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
    Reading,
    Resumed,
    Unreadable,
)
from .core.actions import Action, Commit, FollowNodes, HoldLease, Rest, UnfollowNodes
from .core.member import Stance, Standing, Verdict
from .core.protocol import Protocol
from .core.records import Record, Round, Terminal
from .core.view import NODES, Seen, View, node_key
from .errors import RendezvousConnectionError, RendezvousError, RendezvousStateError

log = logging.getLogger("elastic.rendezvous")

Wish = Callable[[Protocol], None]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_SHORTEST_OUTAGE = 1.0  # seconds; a stream that is replaced at once, or late, is none
_TRIES = 3  # that are overtaken by other changes before there is a pause between them
_GOODBYES = 3  # of a node that goes and is not answered: one for each member of a usual cluster
_NOTABLE = ("open", "close", "evict", "incarnate", "restore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the shell knows, for other threads to read.

    `joins` counts the wishes to join that have been taken in, and `world` is what the last of them
    was given; `error` ends every wait; `refusal` is why this node may not join at all. `gone` says that
    the loop is over, or about to be, and `heard` that the goodbye before that was.
    """

    ready: bool = False
    connected: bool = True
    verdict: Verdict = field(default_factory=lambda: Verdict(Standing.CURRENT))
    view: View = field(default_factory=View)
    joins: int = 0
    world: Round | None = None
    nodes_waiting: int = 0
    refusal: Terminal | str | None = None
    error: RendezvousError | None = None
    gone: bool = False
    heard: bool = False


class Shell:
    """Runs a protocol over a backend. `start`, then `post` wishes and read `situation`; end with `stop`."""

    def __init__(
        self, protocol: Protocol, backend: MembershipBackend, *, failsafe: float | None = None
    ) -> None:
        """`failsafe`: seconds for which the backend may be away before this node gives up; None: no limit."""
        self._protocol = protocol
        self._backend = backend
        self._failsafe = failsafe
        self._inbox: queue.SimpleQueue[News | Wish | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._situation = Situation()
        self._listeners: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="elastic-rendezvous", daemon=True)
        self._stopping = False
        self._wishes_to_join = 0
        # What follows belongs to the loop's thread.
        self._due: float | None = None
        self._upkeep_due = 0.0
        self._pause = _FIRST_PAUSE
        self._away: dict[str, str] = {}
        self._away_since = 0.0
        self._outage = False
        self._lost = ""
        self._reread = False
        self._overtaken = 0
        self._goodbyes = 0
        self._joins = 0
        self._world: Round | None = None
        self._unreadable: dict[str, RendezvousStateError] = {}

    # -- for other threads ------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def post(self, wish: Wish) -> None:
        """Have the loop tell the protocol something."""
        self._inbox.put(wish)

    def join(self, *, master_port: int) -> int:
        """Have the node take part in the next round. Returns the value of `situation.joins` from then on."""

        def wish(protocol: Protocol) -> None:
            self._joins, self._world = number, None
            protocol.join(master_port=master_port)

        self._wishes_to_join += 1
        number = self._wishes_to_join
        self.post(wish)
        return number

    def subscribe(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    @property
    def situation(self) -> Situation:
        return self._situation

    def wait_for(self, condition: Callable[[Situation], bool], timeout: float) -> bool:
        """Block until the condition holds or an error ends it; False where the time is up."""
        return self._wait(lambda: self._situation.error is not None or condition(self._situation), timeout)

    def wait_gone(self, timeout: float) -> bool:
        """Block until the node has left, also after an error; whether its goodbye was heard in time."""
        return self._wait(lambda: self._situation.gone, timeout) and self._situation.heard

    def _wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def stop(self, timeout: float) -> None:
        """End the loop now, with or without a goodbye, and free the backend."""
        self._stopping = True
        self._inbox.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    # -- the loop ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not (self._stopping or self._situation.gone):
                self._turn()
        except Exception as e:
            # Whoever waits for this thread must hear that it ended, whatever the reason.
            log.exception("the rendezvous loop failed")
            self._fail(RendezvousError(f"the rendezvous loop failed: {e!r}"))
        finally:
            self._backend.close()
            with self._changed:
                self._situation = replace(self._situation, gone=True)
                self._changed.notify_all()

    def _turn(self) -> None:
        """One round of the loop: take in what has happened, then act until there is nothing to do."""
        try:
            if not self._situation.ready:
                self._begin()
            else:
                self._take_in()
            self._act()
            self._upkeep()
        except BackendUnavailable as e:
            # Also where nothing can have been done: an answer to the read is what ends the outage.
            self._reread = self._situation.ready
            self._retry_later(str(e))
        except BackendWiped as e:
            log.warning("%s; registering again", e)
            self._protocol.forget()
            self._reread = True
        except LeaseGone:
            self._protocol.lease_lost()
        except BackendRefused as e:
            if self._protocol.me.stance in (Stance.JOINING, Stance.ABSENT):
                self._fail(RendezvousConnectionError(str(e)))
            self._retry_later(str(e), refused=True)

    def _begin(self) -> None:
        """Read the shared state for the first time."""
        self._learn_reading(self._backend.start(self._inbox), nodes=False)
        self._publish(ready=True)

    def _take_in(self) -> None:
        """Wait for something to happen, then tell the protocol all that has."""
        now = time.monotonic()
        due = min(t for t in (self._due, self._upkeep_due, self._patience_ends) if t is not None)
        try:
            item = self._inbox.get(timeout=max(0.0, due - now))
            while True:
                self._tell(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            self._mind_silence()

    def _tell(self, item: News | Wish | None) -> None:
        protocol = self._protocol
        if item is None:
            return
        if isinstance(item, Learned):
            for fact in item.facts:
                self._unreadable.pop(fact.key, None)
            self._learn(lambda: protocol.learn(item.facts))
        elif isinstance(item, Unreadable):
            self._note_unreadable({item.key: item.error})
        elif isinstance(item, Interrupted):
            self._lost_touch("watch", item.reason)
        elif isinstance(item, Resumed):
            self._in_touch("watch")
        elif isinstance(item, Missed):
            log.info("%s; reading everything again", item.reason)
            if item.wiped:
                protocol.forget()
            self._reread = True
            # The watch that ended is made anew with the read.
            self._in_touch("watch")
        elif isinstance(item, LeaseEnded):
            if item.silent:
                self._lost_touch("lease", item.reason)
            else:
                log.warning("%s; registering again", item.reason)
            protocol.lease_lost()
        else:
            item(protocol)

    def _act(self) -> None:
        while not self._stopping:
            if self._reread:
                nodes = self._protocol.following
                self._learn_reading(self._backend.read(nodes=nodes), nodes=nodes)
                self._reread = False
                self._in_touch("call")
            self._deliver()
            leaving = self._protocol.me.stance is Stance.LEAVING
            if not leaving and (self._situation.error is not None or self._situation.refusal is not None):
                self._due = None
                return
            now = time.monotonic()
            if self._outage:
                self._protocol.backend_away(now)
            action = self._protocol.next_action(now)
            if isinstance(action, Commit) and self._depends_on_unreadable(action):
                action = Rest()
            if isinstance(action, Rest):
                self._due = action.until
                if leaving or self._protocol.evicted:
                    # Whoever has no part any more must not lead either.
                    self._backend.drop_lease()
                if leaving:
                    self._publish(gone=True, heard=True)
                return
            self._perform(action)
            self._in_touch("call")
            if self._overtaken >= _TRIES:
                doublings = min(self._overtaken - _TRIES, 8)  # more than reach the longest pause
                self._due = time.monotonic() + _spread(_FIRST_PAUSE * 2**doublings)
                return

    def _perform(self, action: Action) -> None:
        protocol, backend = self._protocol, self._backend
        if isinstance(action, HoldLease):
            backend.hold_lease()
            protocol.lease_held()
            self._in_touch("lease")
        elif isinstance(action, FollowNodes):
            reading = backend.follow_nodes()
            self._note_unreadable(reading.unreadable)
            protocol.followed(reading.revision, self._found(reading))
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
        self._learn(lambda: self._protocol.learn(result.facts))

    def _upkeep(self) -> None:
        now = time.monotonic()
        if now >= self._upkeep_due:
            self._upkeep_due = now + self._backend.upkeep(leads=self._protocol.leads)

    # -- knowledge --------------------------------------------------------------------------------

    def _learn_reading(self, reading: Reading, *, nodes: bool) -> None:
        found = self._found(reading)
        scope = self._backend.scope(nodes=nodes)
        for key in self._unreadable.keys() - reading.unreadable.keys():
            if key in scope or key.startswith(NODES):
                del self._unreadable[key]
        self._note_unreadable(reading.unreadable)
        self._learn(lambda: self._protocol.learn_all(reading.revision, scope, found))

    def _found(self, reading: Reading) -> dict[str, Seen[Record]]:
        """What a reading says. Of a key that cannot be read, what was known of it before still stands."""
        known = self._protocol.view
        if known.contradicted_by(reading.revision, reading.found):
            raise BackendWiped("etcd is older than it was: its data was lost, or restored from a backup")
        kept = {key: known.entries[key] for key in reading.unreadable if key in known.entries}
        return {**kept, **reading.found}

    def _note_unreadable(self, keys: Mapping[str, RendezvousStateError]) -> None:
        for key, error in keys.items():
            if str(self._unreadable.get(key)) != str(error):
                log.error("ignored: %s", error)
            self._unreadable[key] = error

    def _depends_on_unreadable(self, commit: Commit) -> bool:
        """Whether it could only be done blindly. The key must be mended or deleted first, which is news."""
        return any(guard.key in self._unreadable for guard in commit.guards)

    def _obstruction(self) -> RendezvousStateError | None:
        """The error for a node that wants to join. One that was in a world needs no stranger's record."""
        protocol = self._protocol
        own = node_key(protocol.node_id)
        for key, error in self._unreadable.items():
            if protocol.me.round == 0 or key == own or not key.startswith(NODES):
                return error
        return None

    def _learn(self, learn: Callable[[], None]) -> None:
        """Learn, and where this node's own record has vanished by it, find out why."""
        protocol = self._protocol
        before = protocol.view.node(protocol.node_id)
        learn()
        vanished = before is not None and protocol.view.node(protocol.node_id) is None
        if not vanished or protocol.me.stance in (Stance.ABSENT, Stance.LEAVING):
            return
        if self._backend.lease_lives():
            if protocol.evict():
                log.error("this node's record was deleted from etcd: it is evicted and takes no further part")
        else:
            log.log(
                logging.INFO if self._away else logging.WARNING,
                "this node's record is gone with its lease; registering again",
            )
            protocol.lease_lost()

    def _deliver(self) -> None:
        """Hand the world that has formed, or why there can be none, to those who wait."""
        protocol = self._protocol
        joining = protocol.me.stance is Stance.JOINING
        obstruction = self._obstruction() if joining else None
        if obstruction is not None:
            self._fail(obstruction)
            return
        world = protocol.world
        if world is not None:
            self._world = world
            protocol.run(world)
            joining = False
        self._publish(refusal=protocol.refusal() if joining else None)

    def _fail(self, error: RendezvousError) -> None:
        if self._situation.error is None:
            self._publish(error=error)

    def _publish(
        self,
        *,
        ready: bool | None = None,
        refusal: Terminal | str | None = None,
        error: RendezvousError | None = None,
        gone: bool = False,
        heard: bool = False,
    ) -> None:
        before, protocol = self._situation, self._protocol
        verdict = protocol.verdict
        if self._lost and verdict.standing in (Standing.CURRENT, Standing.SUPERSEDED):
            verdict = Verdict(Standing.LOST, self._lost)
        seen = protocol.view.round
        current = seen is not None and verdict.standing is Standing.CURRENT
        after = Situation(
            ready=before.ready if ready is None else ready,
            connected=not self._outage,
            verdict=verdict,
            view=protocol.view,
            joins=self._joins,
            world=self._world,
            nodes_waiting=seen.record.nodes_waiting if seen is not None and current else 0,
            refusal=refusal,
            error=error or before.error,
            gone=gone,
            heard=heard,
        )
        if after == before:
            return
        with self._changed:
            self._situation = after
            self._changed.notify_all()
        for listener in self._listeners:
            listener()

    # -- the backend comes and goes ---------------------------------------------------------------

    def _retry_later(self, reason: str, *, refused: bool = False) -> None:
        """After a failed call: say so once, and try again after a pause or when something happens."""
        self._lost_touch("call", reason)
        if self._protocol.me.stance is Stance.LEAVING:
            self._say_goodbye_again(reason, refused=refused)
            return
        pause = _spread(self._pause)
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)
        if self._situation.ready:
            self._due = time.monotonic() + pause
        else:
            self._wait_for_wish(pause)

    def _say_goodbye_again(self, reason: str, *, refused: bool) -> None:
        """A node that goes asks one member after the other to hear it, and then goes without."""
        self._goodbyes += 1
        if self._situation.ready and not refused and self._goodbyes < _GOODBYES:
            # At once, without reading first: if the last word was heard, the guard of the next one says so.
            self._reread = False
            self._due = time.monotonic()
            return
        # A backend that takes no records may still end a lease, which says the same.
        heard = refused and self._backend.drop_lease()
        if not heard:
            log.warning("leaving without a goodbye: %s", reason)
        self._publish(gone=True, heard=heard)

    def _wait_for_wish(self, pause: float) -> None:
        """A pause before anything could be read; only a wish or `stop` cuts it short."""
        try:
            self._tell(self._inbox.get(timeout=pause))
        except queue.Empty:
            return

    @property
    def _patience_ends(self) -> float | None:
        """When the silence of the backend means something more than it does now."""
        if not self._away or self._lost:
            return None
        if not self._outage:
            return self._away_since + _SHORTEST_OUTAGE
        return None if self._failsafe is None else self._away_since + self._failsafe

    def _mind_silence(self) -> None:
        """Say once that the backend is away; later, if there is a limit, give up."""
        now = time.monotonic()
        if not self._away or self._lost:
            return
        if not self._outage and now >= self._away_since + _SHORTEST_OUTAGE:
            self._outage = True
            reason = next(iter(self._away.values()))
            log.warning("etcd is away (%s); nothing is decided until it is back, and workers run on", reason)
            self._publish()
        if self._failsafe is not None and now >= self._away_since + self._failsafe:
            self._lost = f"etcd has been away for {self._failsafe:g} s (failsafe_timeout)"
            log.error("%s: this node gives up", self._lost)
            self._publish()

    def _lost_touch(self, what: str, reason: str) -> None:
        if not self._away:
            self._away_since = time.monotonic()
        self._away[what] = reason
        self._mind_silence()

    def _in_touch(self, what: str) -> None:
        self._pause = _FIRST_PAUSE
        self._mind_silence()
        if self._away.pop(what, None) is None or self._away:
            return
        if self._outage:
            # Only then: streams that break again and again would otherwise excuse an absent node for ever.
            now = time.monotonic()
            self._protocol.backend_away(now)
            self._outage = False
            log.warning("etcd is back after %.1f s", now - self._away_since)
            self._publish()


def _spread(pause: float) -> float:
    """A pause of about that length, so that nodes that failed together do not try again together."""
    return min(pause, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311 - guards nothing
