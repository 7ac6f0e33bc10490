"""Which process are we: a client's thread and connections do not survive a fork, so a client must know.

A counter that every fork's child raises. An object that remembers the count it was made at is in its own
process exactly while the count is the same. It takes no lock, so a fork can happen at any moment.
"""

from __future__ import annotations

import os

_forks = 0


def current() -> int:
    """The number of forks between this process and the one that imported this module first."""
    return _forks


def _count() -> None:
    global _forks  # noqa: PLW0603 -- one counter per process is the point
    _forks += 1


os.register_at_fork(after_in_child=_count)
