"""Rendezvous: how the nodes of a job agree on who is in the world, and in which order.

`create_handler` makes a handler for a backend by name; `RendezvousHandler` is what every handler
offers, and `DynamicRendezvousHandler` the one whose world may change. Importing this package loads
no client of any backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .api import (
    RendezvousHandler,
    RendezvousHandlerCreator,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStatus,
    RendezvousStoreInfo,
)
from .backends.document.state import P10dRendezvousBackend, RendezvousBackend, Token, TpRendezvousBackend
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

if TYPE_CHECKING:
    from .static.handler import StaticTCPRendezvous

__all__ = [
    "DynamicRendezvousHandler",
    "Failure",
    "Member",
    "Outcome",
    "P10dRendezvousBackend",
    "RendezvousBackend",
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
    "StaticTCPRendezvous",
    "Terminal",
    "Token",
    "TpRendezvousBackend",
    "create_handler",
    "get_registry",
]


def __getattr__(name: str) -> Any:
    # It loads protobuf, which the command line and whoever only wants an error's name must not pay for.
    if name == "StaticTCPRendezvous":
        return importlib.import_module(".static.handler", __name__).StaticTCPRendezvous
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
