"""What the rendezvous shell needs from the place where the records are kept.

A backend carries out transactions, reads, holds this node's lease and tells the news. It decides
nothing. Calls block for a bounded time and are made by one thread; news may come from any thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elastic.rendezvous.core.actions import Commit
from elastic.rendezvous.core.changes import Observer
from elastic.rendezvous.core.records import Record
from elastic.rendezvous.core.view import Fact, Seen
from elastic.rendezvous.errors import RendezvousStateError
from elastic.store import Store


class BackendUnavailable(Exception):
    """The backend gave no answer, or not a final one. ``maybe`` says that a commit may have been applied."""

    def __init__(self, message: str, *, maybe: bool = False) -> None:
        super().__init__(message)
        self.maybe = maybe


class BackendRefused(Exception):
    """The backend answered that it will not do this: no permission, no space, a wrong password."""


class BackendWiped(Exception):
    """The backend is older than it was: its data was lost, or restored from a backup."""


class LeaseGone(Exception):
    """The commit needs this node's lease, which no longer exists."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All records of a scope at one revision, by key; and those keys whose values are no records."""

    revision: int
    found: Mapping[str, Seen[Record]]
    unreadable: Mapping[str, RendezvousStateError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Whether the guards held, and the facts that the transaction made, if so."""

    succeeded: bool
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Learned:
    """News: keys that were written or deleted."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """News: a key was given a value that is no record."""

    key: str
    error: RendezvousStateError


@dataclass(frozen=True, slots=True)
class Interrupted:
    """News: no news can come for now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """News: they come again, with none left out."""


@dataclass(frozen=True, slots=True)
class Missed:
    """News: some were lost; everything must be read again. ``wiped``: what was known holds no more."""

    reason: str
    wiped: bool = False


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """News: this node's lease has ended; ``silent``: for all that is known, as the backend gave no answer."""

    reason: str
    silent: bool = False


News = Learned | Unreadable | Interrupted | Resumed | Missed | LeaseEnded


class Inbox(Protocol):
    """Where news is put; never blocks."""

    def put(self, item: News, /) -> None: ...


class MembershipBackend(ABC):
    """One node's access to the records of one run. Raises only the exceptions of this module."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name under which the backend is asked for."""

    @property
    def place(self) -> str:
        """What messages call the place where the records are kept; by default the name."""
        return self.name

    @abstractmethod
    def start(self, inbox: Inbox) -> Reading:
        """Read what every node follows (round, closed, leader, its own record); tell news of it from then."""

    @abstractmethod
    def read(self, *, nodes: bool) -> Reading:
        """Read the same again, and all node records if asked."""

    @abstractmethod
    def survey(self) -> Reading:
        """Read everything once, for people. The one call that may be made by any thread."""

    @abstractmethod
    def scope(self, *, nodes: bool) -> tuple[str, ...]:
        """The keys and prefixes that `read` covers."""

    @abstractmethod
    def follow_nodes(self) -> Reading:
        """Read all node records and begin to tell news of them."""

    @abstractmethod
    def unfollow_nodes(self) -> None: ...

    @abstractmethod
    def commit(self, commit: Commit) -> CommitResult: ...

    @abstractmethod
    def hold_lease(self) -> None:
        """Get a new lease for this node and keep it alive; `LeaseEnded` tells when that fails."""

    @abstractmethod
    def lease_lives(self) -> bool:
        """Whether this node's lease exists, by the backend's own word."""

    @abstractmethod
    def drop_lease(self) -> bool:
        """Give the lease up, and with it this node's keys; whether they are known to be gone.

        Raises nothing: a lease that cannot be given up ends by itself.
        """

    @abstractmethod
    def upkeep(self, *, leads: bool) -> float:
        """Do what is due from time to time; returns in how many seconds to call again."""

    def observe(self, tell: Observer) -> None:  # noqa: B027
        """Tell of each renewal of this node's lease, and of each answer, from any thread; where it can."""

    @abstractmethod
    def store(self, prefix: str) -> Store:
        """A key/value store for the agents of one round."""

    @abstractmethod
    def close(self) -> None:
        """Free everything, joining all threads. A lease that was not dropped ends by itself."""
