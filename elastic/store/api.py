"""The store interface, with the methods and meanings that the field's stores share.

Keys are text; values are bytes, and text is taken as UTF-8. `get` and `wait` block until the key is
there or the timeout has passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta


class StoreError(Exception):
    """A store operation failed."""


class StoreTimeoutError(StoreError):
    """A key was not there in time."""


class Store(ABC):
    """A key/value store shared by the nodes of a job. All methods may be called from any thread."""

    def __init__(self, *, timeout: timedelta = timedelta(minutes=5)) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` block by default; five minutes unless set."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the default timeout."""
        self._timeout = timeout

    @abstractmethod
    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The value of a key, once it is there; StoreTimeoutError when it is not in time."""

    @abstractmethod
    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all keys are there; StoreTimeoutError names those that are not in time."""

    @abstractmethod
    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there now."""

    @abstractmethod
    def add(self, key: str, amount: int) -> int:
        """Add to the counter at a key (0 where there is none) and return its new value."""

    @abstractmethod
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Store `desired` where the value is `expected`, or where there is none and `expected` is empty.

        Returns the value that is there afterwards; `expected` itself where there is still none.
        """

    @abstractmethod
    def delete_key(self, key: str) -> bool:
        """Delete a key; whether it was there."""

    @abstractmethod
    def num_keys(self) -> int:
        """How many keys the store holds."""
