"""A part of another store: everything under one prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .api import Store
from .durations import Duration
from .foreign import as_store
from .semantics import several


class PrefixStore(Store):
    """Keys live at `<prefix>/<key>` of the other store, which this one uses and does not close.

    The other one is a store of ours, or one of torch or tensorplay (see `as_store`).

    Its timeout is the one that the other store has at construction, until `set_timeout`.
    """

    def __init__(self, prefix: str, store: Any) -> None:
        self._start = f"{prefix}/"
        self._store = as_store(store)
        super().__init__(timeout=self._store.timeout)

    @property
    def underlying_store(self) -> Store:
        """The other store."""
        return self._store

    @property
    def instance(self) -> str:
        return self._store.instance

    def peek(self, key: str) -> bytes | None:
        return self._store.peek(self._name(key))

    def get(self, key: str, timeout: Duration | None = None) -> bytes:
        return self._store.get(self._name(key), self._limit(timeout))

    def multi_get(self, keys: Sequence[str], timeout: Duration | None = None) -> list[bytes]:
        return self._store.multi_get(self._names(keys), self._limit(timeout))

    def wait(self, keys: Sequence[str], timeout: Duration | None = None) -> None:
        self._store.wait(self._names(keys), self._limit(timeout))

    def wait_change(self, key: str, known: bytes | None, timeout: Duration | None = None) -> bool:
        return self._store.wait_change(self._name(key), known, self._limit(timeout))

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(self._names(keys))

    def list_keys(self) -> list[str]:
        return [key[len(self._start) :] for key in self._store.list_keys() if key.startswith(self._start)]

    def num_keys(self) -> int:
        return len(self.list_keys())

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(self._name(key), value)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        self._store.multi_set(self._names(keys), values)

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(self._name(key), value)

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._name(key), amount)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._store.compare_set(self._name(key), expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._name(key))

    def _name(self, key: str) -> str:
        return self._start + key

    def _names(self, keys: Sequence[str]) -> list[str]:
        return [self._name(key) for key in several(keys)]
