"""The barrier in which a foreign agent waits, once its workers have succeeded, until those of all nodes have.

Both launchers' agents make it of keys in their store: a count of arrivals, and a key that the last one sets.
Neither is kept here. The rendezvous is asked instead, which knows better who is to arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

from .participant import Participant


class ExitBarrier:
    """The barrier of an agent whose keys for it begin with `prefix`."""

    def __init__(self, prefix: str, participant: Participant) -> None:
        self._prefix = prefix
        self._participant = participant

    def arrive(self, key: str) -> bool:
        """Whether the counter at `key` is the barrier's; then this node's success is told."""
        is_mine = key.startswith(self._prefix)
        if is_mine:
            self._participant.succeeded()
        return is_mine

    def wait(self, keys: Sequence[str], limit: float) -> bool:
        """Whether all `keys` are the barrier's; then it returns as `Participant.wait_for_success` does."""
        are_mine = bool(keys) and all(key.startswith(self._prefix) for key in keys)
        if are_mine:
            self._participant.wait_for_success(limit)
        return are_mine
