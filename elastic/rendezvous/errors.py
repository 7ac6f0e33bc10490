"""Why a membership could not be formed, or has ended.

::

    RendezvousError
    ├── RendezvousClosedError        the job has ended; says how
    ├── RendezvousTimeoutError       a phase outlived its time
    ├── RendezvousExhaustedError     the join window passed with fewer than min_nodes
    ├── RendezvousConnectionError    the backend could not be reached, or refuses
    ├── RendezvousStateError         a record cannot be read, or this node may not take part
    └── RendezvousGracefulExitError  unwinds an agent that leaves without failure

Every error carries a sentence that says what happened and what to do.
"""

from __future__ import annotations

from .core.records import Outcome, Terminal


class RendezvousError(Exception):
    """Base of all rendezvous errors."""


class RendezvousClosedError(RendezvousError):
    """The rendezvous is closed and accepts no more participants.

    ``terminal`` is the record of how the job ended, where there is one; ``exit_code`` is the code
    with which an agent that meets it should end: 0 for a job that succeeded.
    """

    def __init__(self, message: str, *, terminal: Terminal | None = None) -> None:
        super().__init__(message)
        self.terminal = terminal

    @property
    def exit_code(self) -> int:
        if self.terminal is None:
            return 1
        if self.terminal.outcome is Outcome.SUCCEEDED:
            return 0
        return self.terminal.exit_code or 1


class RendezvousTimeoutError(RendezvousError):
    """A rendezvous phase exceeded its time."""


class RendezvousExhaustedError(RendezvousError):
    """The join window elapsed without reaching ``min_nodes``."""


class RendezvousConnectionError(RendezvousError):
    """The rendezvous backend could not be reached, or refuses to serve this node."""


class RendezvousStateError(RendezvousError):
    """A record is corrupt or of a newer version, or the shared state excludes this node."""


class RendezvousGracefulExitError(RendezvousError):
    """Unwinds an agent that leaves without failure; its process ends with code 0."""
