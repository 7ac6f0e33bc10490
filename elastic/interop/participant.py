"""One node's part in a rendezvous, for an agent that knows only the field's common interface.

Such an agent looks at nothing but the number of nodes that wait, tells nobody that its workers have
succeeded or failed, and cannot go back once it has a world. So here a world that has lost a member
counts as one with a node waiting; a world is handed out only when all its members have taken it up; and how
the agent ends is told to the rendezvous. Knows no framework.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elastic.rendezvous import (
    Failure,
    Outcome,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousSettings,
    RendezvousStatus,
    RendezvousTimeoutError,
    Standing,
    create_handler,
)
from elastic.store import StoreError, StoreTimeoutError

from .round_store import RoundOver, RoundStore

_HERE = "elastic/here/{}".format
_ALL_HERE = "elastic/all-here"

log = logging.getLogger("elastic.rendezvous")


@dataclass(frozen=True, slots=True)
class Joined:
    """A world that all its members have taken up, and its store."""

    info: RendezvousInfo
    store: RoundStore


class Participant:
    """Speaks to `handler` for a foreign agent, and owns it. After use, call `leave`.

    `join_seconds` bounds the taking up of a world, `close_seconds` the waits at the end.
    """

    def __init__(self, handler: RendezvousHandler, *, join_seconds: float, close_seconds: float) -> None:
        self._handler = handler
        self._join_seconds = join_seconds
        self._close_seconds = close_seconds
        self._changed = threading.Condition()
        self._told = ""
        self._round = 0
        handler.subscribe(self._notice)

    @staticmethod
    def create(params: RendezvousParameters) -> Participant:
        """One on the backend that `params` names; ValueError or RendezvousConnectionError as there."""
        timeout = RendezvousSettings.from_params(params).timeout
        return Participant(
            create_handler(params),
            join_seconds=timeout.join.total_seconds(),
            close_seconds=timeout.close.total_seconds(),
        )

    @property
    def handler(self) -> RendezvousHandler:
        return self._handler

    @property
    def round(self) -> int:
        """The number of the last world that was handed out; 0 before the first."""
        return self._round

    def join(self) -> Joined:
        """Block until this node is in a new world whose members are all there. Its workers must be stopped.

        Raises what `next_rendezvous` raises, and RendezvousTimeoutError for members that do not come.
        """
        while True:
            info = self._handler.next_rendezvous()
            self._round, self._told = info.round, ""
            store = RoundStore(info.store, over=self.over, pause=self._pause)
            try:
                self._meet(info, store)
            except RoundOver as e:
                log.warning("round %d ended before it began (%s): joining the next", info.round, e)
            except StoreTimeoutError as e:
                raise RendezvousTimeoutError(self._absent(info, store)) from e
            except StoreError as e:
                raise RendezvousConnectionError(f"round {info.round} could not be taken up: {e}") from e
            else:
                return Joined(info, store)

    def nodes_waiting(self) -> int:
        """How many nodes wait to be let in, and at least 1 where the world is over. Never blocks."""
        status = self._handler.status()
        reason = _over(status)
        if reason is None:
            return status.nodes_waiting
        if reason != self._told:
            log.warning("the workers of round %d are to be stopped: %s", self._round, reason)
            self._told = reason
        return max(1, status.nodes_waiting)

    def over(self) -> str | None:
        """Why the last world that was handed out is over; None while it is not."""
        return _over(self._handler.status())

    def succeeded(self) -> None:
        """Say that all workers of this node have succeeded. Does not block; may be called again."""
        self._handler.report_success()

    def wait_for_success(self, limit: float) -> None:
        """Return once the workers of all nodes have succeeded.

        RoundOver at once where they will not all (a node is lost, or starts its workers anew), and
        StoreTimeoutError after `limit` seconds.
        """
        self.succeeded()
        self._wait(lambda status: status.standing is not Standing.CURRENT, limit)
        if self.job_succeeded():
            return
        reason = self.over()
        if reason is None:
            raise StoreTimeoutError(f"the workers of other nodes have not finished within {limit:g} s")
        raise RoundOver(reason)

    def job_succeeded(self) -> bool:
        """Whether the job is known to have ended well."""
        terminal = self._handler.status().terminal
        return terminal is not None and terminal.outcome is Outcome.SUCCEEDED

    def fail(self, failure: Failure) -> None:
        """Say that this node's workers have failed for good. Waits until that has ended the job.

        It does not where a node was lost as well, since that explains the failure, or where peers take
        longer to stop than the close timeout; then this node's leaving is what they hear of.
        """
        self._handler.regroup(failure.message, failure)
        self._wait(lambda s: s.standing not in (Standing.CURRENT, Standing.SUPERSEDED), self._close_seconds)

    def leave(self) -> bool:
        """Leave and free everything; whether the goodbye was heard. May be called again."""
        return self._handler.shutdown()

    # -- inside -----------------------------------------------------------------------------------

    def _meet(self, info: RendezvousInfo, store: RoundStore) -> None:
        """Wait for all members, so that none that died on the way is waited for later, where all is lost."""
        limit = self._join_seconds
        store.set(_HERE(info.rank), b"1", limit)
        if info.rank == 0:
            store.wait([_HERE(rank) for rank in range(info.world_size)], limit)
            store.set(_ALL_HERE, b"1", limit)
        else:
            store.wait([_ALL_HERE], limit)

    def _absent(self, info: RendezvousInfo, store: RoundStore) -> str:
        try:
            members = enumerate(info.participants)
            absent = [m.name for rank, m in members if not store.check([_HERE(rank)], self._close_seconds)]
        except StoreError as e:
            absent = [f"some (it cannot be told which: {e})"]
        return (
            f"round {info.round} has formed, but these members have not taken it up within "
            f"{self._join_seconds:g} s (join_timeout): {', '.join(absent)}; look at their agents, which must "
            "all be of the same launcher"
        )

    def _notice(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        self._wait(lambda status: status.standing is not Standing.CURRENT, seconds)

    def _wait(self, condition: Callable[[RendezvousStatus], bool], limit: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: condition(self._handler.status()), limit)


def _over(status: RendezvousStatus) -> str | None:
    return None if status.standing is Standing.CURRENT else status.reason or status.standing.value


def ended_well(error: RendezvousError) -> bool:
    """Whether an error of `join` says that the job has succeeded, so that there is nothing left to do."""
    if isinstance(error, RendezvousClosedError):
        return error.exit_code == 0
    return isinstance(error, RendezvousGracefulExitError)
