"""The keys of a run whose values are no records, and what may not be done while they are there.

What was known of such a key before still stands; a change that is guarded by it would be a blind one.
Belongs to the rendezvous loop, and is used by its thread alone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from .core.actions import Commit
from .core.view import CONTROL, NODES, node_key
from .errors import RendezvousStateError

log = logging.getLogger("elastic.rendezvous")


class UnreadableKeys:
    """Each key with the error that says why it cannot be read. Says each once."""

    def __init__(self) -> None:
        self._errors: dict[str, RendezvousStateError] = {}

    def note(self, keys: Mapping[str, RendezvousStateError]) -> None:
        for key, error in keys.items():
            if str(self._errors.get(key)) != str(error):
                log.error("ignored: %s", error)
            self._errors[key] = error

    def mended(self, key: str) -> None:
        """It was written anew, or deleted."""
        self._errors.pop(key, None)

    def note_reading(self, scope: Collection[str], keys: Mapping[str, RendezvousStateError]) -> None:
        """What a read of everything in `scope` found; the others in it are mended."""
        for key in self._errors.keys() - keys.keys():
            if key in scope or key.startswith(NODES):
                del self._errors[key]
        self.note(keys)

    def forbid(self, commit: Commit) -> bool:
        """Whether it could only be done blindly. The key must be mended or deleted first, which is news."""
        return any(guard.key in self._errors for guard in commit.guards)

    def obstruction(self, node_id: str, *, veteran: bool) -> RendezvousStateError | None:
        """The error for a node that wants to join. A veteran, once in a world, needs no stranger's record."""
        own = node_key(node_id)
        for key, error in self._errors.items():
            if key == CONTROL:
                continue  # membership does not depend on it
            if not veteran or key == own or not key.startswith(NODES):
                return error
        return None
