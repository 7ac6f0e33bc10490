"""A state of bytes behind compare-and-set: all that a rendezvous needs of a plain key/value store.

`RendezvousBackend` is the field's interface. `TpRendezvousBackend` and `P10dRendezvousBackend` keep the
state at one key of a store; they are one implementation under two names. What the bytes mean is not known
here: :mod:`.document` keeps all records of a run in them.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from elastic.rendezvous.errors import RendezvousConnectionError
from elastic.store import Store, StoreError, as_store

Token = Any
"""Stands for one state of a backend; made by it, and opaque to everybody else."""

_POLL = 1.0  # seconds between two looks at a state that cannot be waited for


class RendezvousBackend(ABC):
    """A shared state that is replaced as a whole, by one writer at a time.

    All methods may be called from any thread, and raise RendezvousConnectionError where the state cannot be
    reached.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name under which the backend is asked for."""

    @property
    def key(self) -> str:
        """Where the state is, for messages; by default the name."""
        return self.name

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None:
        """The state and its token; None where there is no state yet. Does not wait for one."""

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Replace the state for which `token` stands, or set the first one where it is None.

        Returns the state that is there afterwards, its token, and whether it is the one given; None where
        there is no state afterwards.
        """

    def wait_state(self, token: Token | None, timeout: timedelta) -> bool:
        """Block until there is another state than the one of `token`; False where the time is up.

        Here, the state is read once a second. A backend that can be woken does better.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        while True:
            found = self.get_state()
            if (None if found is None else found[1]) != token:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_POLL, left))


class _StoreState(RendezvousBackend):
    """The state of one run at one key of a store; its token is the state itself, so it is never empty."""

    _name = ""
    _prefix = "elastic.rendezvous."

    def __init__(self, store: Any, run_id: str) -> None:
        """`store` is one of :mod:`elastic.store`, of torch or of tensorplay. ValueError without a run id."""
        if not run_id:
            raise ValueError("the run id is empty: name the job, for instance --rdzv-id=my-job")
        self._store: Store = as_store(store)
        self._key = self._prefix + run_id

    @property
    def name(self) -> str:
        return self._name

    @property
    def key(self) -> str:
        return self._key

    @property
    def store(self) -> Store:
        """The store that holds the state."""
        return self._store

    def get_state(self) -> tuple[bytes, Token] | None:
        with _translated():
            found = self._store.peek(self._key)
        return (found, found) if found else None

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        if not state:
            raise ValueError("an empty state cannot be told from none: write at least one byte")
        expected = b"" if token is None else token
        if not isinstance(expected, bytes):
            return self._instead()
        with _translated():
            found = self._store.compare_set(self._key, expected, state)
        if found == state:
            return state, state, True
        # What a store that holds nothing returns looks like what was expected.
        return self._instead() if found == expected else (found, found, False)

    def wait_state(self, token: Token | None, timeout: timedelta) -> bool:
        known = token if isinstance(token, bytes) else None
        with _translated():
            return self._store.wait_change(self._key, known, timeout)

    def _instead(self) -> tuple[bytes, Token, bool] | None:
        found = self.get_state()
        return None if found is None else (*found, False)


class TpRendezvousBackend(_StoreState):
    """Keeps the state at one key of a store, by compare-and-set."""

    _name = "tcp"


class P10dRendezvousBackend(_StoreState):
    """The same over the key/value store of a process group: torch's, tensorplay's, or one of ours."""

    _name = "p10d"


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except StoreError as e:
        raise RendezvousConnectionError(str(e)) from e
