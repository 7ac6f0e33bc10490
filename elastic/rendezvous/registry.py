"""Backends by name.

Ours and other packages' register in the same way: as an entry point of the group
``elastic.rendezvous`` whose value is a function from `RendezvousParameters` to a handler. Only the
one that is asked for is loaded, so that a broken plug-in breaks nothing else. `register` adds one
from code. The backends of this package keep their names, whatever else is installed.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import traceback

from .api import RendezvousHandler, RendezvousHandlerCreator, RendezvousParameters
from .errors import RendezvousError

GROUP = "elastic.rendezvous"
_OURS = "elastic."  # how the entry points of this package begin


class RendezvousHandlerRegistry:
    """Creators of rendezvous handlers, by backend name."""

    def __init__(self) -> None:
        self._creators: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Add a backend. ValueError for an empty name, or one that another creator has."""
        if not backend:
            raise ValueError("a rendezvous backend needs a name")
        if self._creators.setdefault(backend, creator) is not creator:
            raise ValueError(
                f"the rendezvous backend {backend!r} is registered already, with another creator"
            )

    def names(self) -> list[str]:
        """The names of all backends, registered from code or installed."""
        return sorted({*self._creators, *importlib.metadata.entry_points(group=GROUP).names})

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """A handler from the backend that `params` names.

        ValueError for an unknown backend or wrong settings, a RendezvousError as the backend raises it, and
        RuntimeError, which names the backend, for a broken plug-in.
        """
        creator = self._creator(params.backend)
        try:
            handler = creator(params)
        except (ValueError, RendezvousError):
            raise
        except Exception as e:
            # Another package's code can raise anything.
            raise RuntimeError(
                f"the rendezvous backend {params.backend!r} made no handler: {e!r} ({_place(e)})"
            ) from e
        if not isinstance(handler, RendezvousHandler):
            raise RuntimeError(
                f"the rendezvous backend {params.backend!r} made {handler!r}, which is no RendezvousHandler: "
                "its plug-in is broken"
            )
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"the rendezvous backend {params.backend!r} made a handler that calls itself "
                f"{handler.get_backend()!r}: its plug-in is broken"
            )
        return handler

    def _creator(self, backend: str) -> RendezvousHandlerCreator:
        if backend in self._creators:
            return self._creators[backend]
        # A package that is installed twice has two entries of one value.
        entries = {entry.value: entry for entry in importlib.metadata.entry_points(group=GROUP, name=backend)}
        ours = [entry for value, entry in entries.items() if value.startswith(_OURS)]
        chosen = ours or list(entries.values())
        if ours or len(chosen) == 1:
            return _loaded(chosen[0])
        if chosen:
            raise RuntimeError(
                f"several packages have a rendezvous backend {backend!r} ({', '.join(sorted(entries))}): "
                "uninstall all but one of them"
            )
        names = self.names()
        near = difflib.get_close_matches(backend, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
        raise ValueError(f"unknown rendezvous backend {backend!r}: {hint}")


def _loaded(entry: importlib.metadata.EntryPoint) -> RendezvousHandlerCreator:
    what = f"the rendezvous backend {entry.name!r} ({entry.value})"
    try:
        loaded: RendezvousHandlerCreator = entry.load()
    except Exception as e:
        # Importing another package's module can raise anything.
        raise RuntimeError(f"{what} cannot be loaded: {e!r}") from e
    if not callable(loaded):
        raise RuntimeError(f"{what} is {loaded!r}, and no function: its plug-in is broken")
    return loaded


def _place(error: Exception) -> str:
    """Where an exception was raised, for who mends it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"


_registry = RendezvousHandlerRegistry()


def get_registry() -> RendezvousHandlerRegistry:
    """The registry of this process."""
    return _registry


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """A handler from the process-wide registry; see `RendezvousHandlerRegistry.create_handler`."""
    return _registry.create_handler(params)
