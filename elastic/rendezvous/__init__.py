"""Rendezvous: how the nodes of a job agree on who is in the world, and in which order.

`create_handler` makes a handler for a backend by name; `RendezvousHandler` is what every handler
offers, and `DynamicRendezvousHandler` the one whose world may change. Importing this package loads
no client of any backend.
"""

from .api import (
    RendezvousHandler,
    RendezvousHandlerCreator,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStatus,
    RendezvousStoreInfo,
)
from .core.member import Standing
from .core.records import Failure, Member, Outcome, Terminal
from .dynamic import DynamicRendezvousHandler
from .errors import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousExhaustedError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
)
from .registry import RendezvousHandlerRegistry, create_handler, get_registry
from .settings import RendezvousSettings, RendezvousTimeout

__all__ = [
    "DynamicRendezvousHandler",
    "Failure",
    "Member",
    "Outcome",
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousExhaustedError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousSettings",
    "RendezvousStateError",
    "RendezvousStatus",
    "RendezvousStoreInfo",
    "RendezvousTimeout",
    "RendezvousTimeoutError",
    "Standing",
    "Terminal",
    "create_handler",
    "get_registry",
]
