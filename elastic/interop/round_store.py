"""The key/value store of one round, for an agent that exchanges values over it.

A wait ends when the round does: a peer that is lost will never set the key that is waited for. And one
refused connection is no failure: while etcd is away, what may be repeated is, for as long as the caller
would wait anyway. It decides nothing about membership; it is told when the round is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from elastic.store import Store, StoreError, StoreTimeoutError
from elastic.store.api import not_set

T = TypeVar("T")

_SLICE = 1.0
"""Seconds for which the store itself waits at a time. It wakes on a key, but not on the end of the round."""


class RoundOver(StoreError):
    """The round whose store this is has ended."""


class RoundStore:
    """`over` says why the round is over, or None; `pause` waits so many seconds, or until it is over.

    All limits are seconds. Raises StoreTimeoutError where a key is not there in time, RoundOver, and
    StoreError where the store does not answer within the limit.
    """

    def __init__(
        self, store: Store, *, over: Callable[[], str | None], pause: Callable[[float], None]
    ) -> None:
        self._store = store
        self._over = over
        self._pause = pause

    def set(self, key: str, value: str | bytes, limit: float) -> None:
        self._persist(lambda _: self._store.set(key, value), limit)

    def get(self, key: str, limit: float) -> bytes:
        """The value of a key, once it is there."""

        def read(seconds: float) -> bytes:
            self._store.wait([key], timedelta(seconds=seconds))
            return self._store.get(key)

        try:
            return self._persist(read, limit)
        except StoreTimeoutError as e:
            raise not_set([key], limit) from e

    def wait(self, keys: Sequence[str], limit: float) -> None:
        """Return once all keys are there."""
        try:
            self._persist(lambda seconds: self._store.wait(keys, timedelta(seconds=seconds)), limit)
        except StoreTimeoutError as e:
            missing = [key for key in keys if not self.check([key], limit=0)]
            raise not_set(missing or keys, limit) from e  # they may have come just now

    def check(self, keys: Sequence[str], limit: float) -> bool:
        """Whether all keys are there now."""
        return self._persist(lambda _: self._store.check(keys), limit)

    # Not repeated: when an answer is lost, nobody knows whether these were done.

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._store.compare_set(key, expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(key)

    def num_keys(self) -> int:
        return self._store.num_keys()

    def _persist(self, call: Callable[[float], T], limit: float) -> T:
        """Make a call that may wait for a slice of the time, again and again within the limit."""
        deadline = time.monotonic() + limit
        while True:
            left = deadline - time.monotonic()
            try:
                return call(min(_SLICE, max(0.0, left)))
            except StoreError as e:
                reason = self._over()
                if reason is not None:
                    raise RoundOver(reason) from e
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                if not isinstance(e, StoreTimeoutError):
                    self._pause(min(_SLICE, left))
