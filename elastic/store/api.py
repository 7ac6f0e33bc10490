"""The store interface, with the methods and meanings that the field's stores share.

Keys are text; values are bytes, and text is taken as UTF-8. `get` and `wait` block until the key is
there or the timeout has passed. A timeout is a timedelta, or a number of seconds.

Nothing here talks to a store. What a store cannot be told by its server is asked for at an interval, and
that is the default of `wait_change` alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TypeVar

from .durations import DEFAULT_TIMEOUT, Duration, as_timedelta, seconds

# How often a store that cannot push is asked whether a value has changed, in seconds.
POLL_INTERVAL = 0.2

Self = TypeVar("Self", bound="Store")


class StoreError(Exception):
    """A store operation failed."""


class StoreTimeoutError(StoreError):
    """A key was not there in time."""


class StoreDeniedError(StoreError):
    """The store's secret and the caller's are not the same; to try again is no use."""


def not_set(keys: Sequence[str], limit: float) -> StoreTimeoutError:
    """The error for keys that were not there within `limit` seconds."""
    return StoreTimeoutError(f"not set within {limit:g} s: {', '.join(map(repr, keys))}")


def polled(condition: Callable[[], bool], limit: float) -> bool:
    """Whether the condition comes to hold within `limit` seconds, asked for every POLL_INTERVAL.

    For stores that have no way to tell of a change.
    """
    deadline = time.monotonic() + limit
    while not condition():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, POLL_INTERVAL))
    return True


class Store(ABC):
    """A key/value store shared by the nodes of a job. All methods may be called from any thread.

    `keys` are a list; one text in its place is a TypeError. Every method may raise StoreError, with the
    reason. A store that owns connections, files or threads is closed by its owner, by `close` or as a
    context manager; none of its methods may be used afterwards.
    """

    def __init__(self, *, timeout: Duration = DEFAULT_TIMEOUT) -> None:
        self._timeout = as_timedelta(timeout)

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` block by default; five minutes unless set."""
        return self._timeout

    def set_timeout(self, timeout: Duration) -> None:
        """Change the default timeout."""
        self._timeout = as_timedelta(timeout)

    @property
    def instance(self) -> str:
        """Which data these are: another text once the store has lost all its data and begun anew.

        It is of the answer of the last call. Empty where the store cannot tell.
        """
        return ""

    # -- reading ----------------------------------------------------------------------------------------

    @abstractmethod
    def peek(self, key: str) -> bytes | None:
        """The value of a key now, or None where there is none. Does not wait for it."""

    @abstractmethod
    def get(self, key: str, timeout: Duration | None = None) -> bytes:
        """The value of a key, once it is there; StoreTimeoutError when it is not in time."""

    @abstractmethod
    def multi_get(self, keys: Sequence[str], timeout: Duration | None = None) -> list[bytes]:
        """The values of keys, in order, once all are there; StoreTimeoutError names those that are not."""

    @abstractmethod
    def wait(self, keys: Sequence[str], timeout: Duration | None = None) -> None:
        """Return once all keys are there; StoreTimeoutError names those that are not in time."""

    def wait_change(self, key: str, known: bytes | None, timeout: Duration | None = None) -> bool:
        """Wait until the value of a key is another than `known`, None being "there is none".

        True once it is another, at once where it is already; False when it still is `known` after the
        timeout (by default the store's). What it is then, `peek` tells. A change that is taken back at once
        may go unseen.
        """
        return polled(lambda: self.peek(key) != known, self._limit(timeout))

    @abstractmethod
    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there now."""

    def has(self, key: str) -> bool:
        """Whether a key is there now."""
        return self.check([key])

    @abstractmethod
    def list_keys(self) -> list[str]:
        """All keys of the store, sorted."""

    @abstractmethod
    def num_keys(self) -> int:
        """How many keys the store holds."""

    # -- writing ----------------------------------------------------------------------------------------

    @abstractmethod
    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""

    @abstractmethod
    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Store several values. ValueError where there are not as many as keys."""

    @abstractmethod
    def append(self, key: str, value: str | bytes) -> None:
        """Store what is there with `value` after it; `value` alone where there is nothing."""

    @abstractmethod
    def add(self, key: str, amount: int) -> int:
        """Add to the counter at a key (0 where there is none) and return its new value.

        The counter is stored as decimal text, of 64 bits; StoreError for a value that is no such number.
        """

    @abstractmethod
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Store `desired` where the value is `expected`, or where there is none and `expected` is empty.

        Returns the value that is there afterwards; `expected` itself where there is still none.
        """

    @abstractmethod
    def delete_key(self, key: str) -> bool:
        """Delete a key; whether it was there."""

    # -- ending -----------------------------------------------------------------------------------------

    def close(self) -> None:  # noqa: B027
        """Free what the store owns. Calls that are blocked in it raise StoreError. May be called again."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _limit(self, timeout: Duration | None) -> float:
        """The seconds that a call may block."""
        return seconds(self._timeout if timeout is None else timeout)
