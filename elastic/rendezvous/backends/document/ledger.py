"""The document of a run, where it is kept: read, changed and waited for.

Adapter between a `RendezvousBackend`, which holds bytes, and the documents that they are. A change is worked
out anew for each document that somebody else has put in its way, for a bounded time, with pauses that differ
from node to node. Used by several threads.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from elastic.rendezvous.backends.api import BackendRefused, BackendUnavailable
from elastic.rendezvous.errors import RendezvousConnectionError
from elastic.utils import backoff

from .codec import decode, encode
from .document import Document
from .pace import Pace
from .state import RendezvousBackend, Token

_MOST_MAKINGS = 10  # of a first state that is gone again at once
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25

R = TypeVar("R")


class Contended(BackendUnavailable):
    """The backend answers, but other writers came first for as long as this one tried."""


@dataclass(frozen=True, slots=True)
class Held:
    """A document, and the token that stands for it."""

    document: Document
    token: Token


@dataclass(frozen=True, slots=True)
class Changed(Generic[R]):
    """The document after a change, or, where `refusal` says why there was none, as it is."""

    held: Held
    refusal: R | None = None


class Ledger:
    """Raises the backend's errors, and RendezvousStateError for a state that is no document."""

    def __init__(self, backend: RendezvousBackend, *, pace: Pace) -> None:
        self._backend = backend
        self._pace = pace
        self._last: tuple[bytes, Document] | None = None

    @property
    def key(self) -> str:
        """Where the state is, for messages."""
        return self._backend.key

    def read(self) -> Held:
        """The document as it is; an empty one is made where there is none."""
        try:
            for _ in range(_MOST_MAKINGS):
                found = self._backend.get_state()
                if found is not None:
                    return self._held(*found)
                made = self._backend.set_state(encode(Document(history=uuid.uuid4().hex)), None)
                if made is not None:
                    return self._held(made[0], made[1])
        except RendezvousConnectionError as e:
            raise BackendUnavailable(str(e)) from e
        raise BackendUnavailable(f"the state at {self.key!r} is not there, and cannot be made")

    def change(self, change: Callable[[Document], Document | R], *, seconds: float) -> Changed[R]:
        """Replace the document by what `change` makes of it; where that is no document, it says why not.

        A document that is returned as it was is not written. Contended where others have come first for so
        many `seconds`. The `maybe` of a BackendUnavailable says that the change may have been done.
        """
        deadline = self._pace.now() + seconds
        defeats = 0
        held = self.read()
        while True:
            after = change(held.document)
            if not isinstance(after, Document):
                return Changed(held, after)
            if after is held.document:
                return Changed(held)
            written = self._write(after, held.token)
            if written is None:
                held = self.read()
            elif written[2]:
                self._last = (written[0], after)
                return Changed(Held(after, written[1]))
            else:
                held = self._held(written[0], written[1])
            if self._pace.now() >= deadline:
                raise Contended(
                    f"other nodes have changed the state at {self.key!r} without a pause for {seconds:g} s"
                )
            longest = backoff.limit(defeats, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
            self._pace.pause(self._pace.spread(0.0, longest))
            defeats += 1

    def wait(self, token: Token | None, seconds: float) -> bool:
        """Wait for another document than that of the token."""
        try:
            return self._backend.wait_state(token, timedelta(seconds=max(0.0, seconds)))
        except RendezvousConnectionError as e:
            raise BackendUnavailable(str(e)) from e

    def _write(self, document: Document, token: Token) -> tuple[bytes, Token, bool] | None:
        try:
            state = encode(document)
        except ValueError as e:
            raise BackendRefused(str(e)) from e
        try:
            return self._backend.set_state(state, token)
        except RendezvousConnectionError as e:
            error = e
        try:
            # One look often tells what became of it: the token stands for one state, and so does the text.
            found = self._backend.get_state()
        except RendezvousConnectionError:
            found = None
        if found is not None and (found[0] == state or found[1] == token):
            return (*found, found[0] == state)
        raise BackendUnavailable(str(error), maybe=True) from error

    def _held(self, state: bytes, token: Token) -> Held:
        last = self._last
        if last is None or last[0] != state:
            self._last = last = (state, decode(self.key, state))
        return Held(last[1], token)
