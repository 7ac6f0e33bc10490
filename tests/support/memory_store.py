"""A store inside this process, whose clients can be cut off, and whose data can be lost, at will."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from elastic.store import Store, StoreError, StoreTimeoutError

Duration = timedelta | float


@dataclass
class Memory:
    """What all clients share."""

    values: dict[str, bytes] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wipe(self) -> None:
        with self.changed:
            self.values.clear()
            self.changed.notify_all()


class MemoryStore(Store):
    """One client. While `cut`, every call fails, one that is blocked too."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self._cut = False
        self.writes = 0

    @property
    def cut(self) -> bool:
        return self._cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        with self._memory.changed:
            self._cut = cut
            self._memory.changed.notify_all()

    def _values(self) -> dict[str, bytes]:
        if self._cut:
            raise StoreError("cut off")
        return self._memory.values

    def peek(self, key: str) -> bytes | None:
        with self._memory.changed:
            return self._values().get(key)

    def get(self, key: str, timeout: Duration | None = None) -> bytes:
        self.wait([key], timeout)
        with self._memory.changed:
            return self._values()[key]

    def multi_get(self, keys: Sequence[str], timeout: Duration | None = None) -> list[bytes]:
        return [self.get(key, timeout) for key in keys]

    def wait(self, keys: Sequence[str], timeout: Duration | None = None) -> None:
        with self._memory.changed:
            if not self._memory.changed.wait_for(
                lambda: all(key in self._values() for key in keys), self._limit(timeout)
            ):
                raise StoreTimeoutError(", ".join(keys))

    def wait_change(self, key: str, known: bytes | None, timeout: Duration | None = None) -> bool:
        deadline = time.monotonic() + self._limit(timeout)
        with self._memory.changed:
            return self._memory.changed.wait_for(
                lambda: self._values().get(key) != known, deadline - time.monotonic()
            )

    def check(self, keys: Sequence[str]) -> bool:
        with self._memory.changed:
            return all(key in self._values() for key in keys)

    def list_keys(self) -> list[str]:
        with self._memory.changed:
            return sorted(self._values())

    def num_keys(self) -> int:
        return len(self.list_keys())

    def set(self, key: str, value: str | bytes) -> None:
        with self._memory.changed:
            self._values()[key] = value.encode() if isinstance(value, str) else value
            self._memory.changed.notify_all()

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def append(self, key: str, value: str | bytes) -> None:
        with self._memory.changed:
            self.set(key, (self.peek(key) or b"") + (value.encode() if isinstance(value, str) else value))

    def add(self, key: str, amount: int) -> int:
        with self._memory.changed:
            total = int(self.peek(key) or 0) + amount
            self.set(key, str(total))
            return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        old = expected.encode() if isinstance(expected, str) else expected
        with self._memory.changed:
            current = self.peek(key)
            if (current or b"") != old or (current is None and old):
                return old if current is None else current
            self.set(key, desired)
            self.writes += 1
            return self.get(key)

    def delete_key(self, key: str) -> bool:
        with self._memory.changed:
            was_there = self._values().pop(key, None) is not None
            self._memory.changed.notify_all()
            return was_there

    def close(self) -> None:
        self.cut = True
