"""Our rendezvous errors, raised as those of another launcher. Its agent knows no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from elastic.rendezvous import RendezvousError, RendezvousExhaustedError, RendezvousTimeoutError


@contextmanager
def raised_as(api: ModuleType) -> Iterator[None]:
    """Raise each of our errors, with its sentence, as the error of its name, or its base's, in `api`.

    Both launchers have our names. RendezvousExhaustedError becomes a RendezvousTimeoutError: torch has none,
    and tensorplay's writes its own sentence, without the report.
    """
    try:
        yield
    except RendezvousError as e:
        kind = RendezvousTimeoutError if isinstance(e, RendezvousExhaustedError) else type(e)
        name = next(k.__name__ for k in kind.__mro__ if hasattr(api, k.__name__))
        theirs: type[Exception] = getattr(api, name)
        raise theirs(str(e)) from e
