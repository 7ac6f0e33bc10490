"""A round's store in the shape of torch's `Store`, for torchrun's agents. No worker ever sees it.

torch's C++ code calls some methods by their C++ names, which are therefore here as well. Values are bytes;
what goes wrong is torch's `DistStoreError`, the error that torch's agent knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from torch.distributed import DistStoreError, Store

from elastic.store import StoreError

from .exit_barrier import ExitBarrier
from .participant import Participant
from .round_store import RoundStore

EXIT_BARRIER = "torchelastic/agent/terminal_state"
"""How the keys begin by which torch's agents wait for each other once their workers have succeeded."""


class AgentStore(Store):  # type: ignore[misc]  # torch is not there where types are checked
    """The keys of one round. Blocking calls wait for `timeout`, which `set_timeout` sets (five minutes)."""

    def __init__(self, store: RoundStore, participant: Participant) -> None:
        super().__init__()
        self._store = store
        self._barrier = ExitBarrier(EXIT_BARRIER, participant)

    def set(self, key: str, value: str | bytes) -> None:
        with _translated():
            self._store.set(key, value, self._limit())

    def get(self, key: str) -> bytes:
        with _translated():
            return self._store.get(key, self._limit())

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all keys are there. For those of the exit barrier: once all workers have succeeded."""
        limit = self._limit() if timeout is None else timeout.total_seconds()
        with _translated():
            if not self._barrier.wait(keys, limit):
                self._store.wait(keys, limit)

    def check(self, keys: Sequence[str]) -> bool:
        with _translated():
            return self._store.check(keys, self._limit())

    def add(self, key: str, amount: int) -> int:
        """Add to the counter at a key; its new value, or 0 for the exit barrier, which is not kept."""
        if self._barrier.arrive(key):
            return 0
        with _translated():
            return self._store.add(key, amount)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        with _translated():
            return self._store.compare_set(key, expected, desired)

    def append(self, key: str, value: str | bytes) -> None:
        """Add to the value at a key, if there is one; of several at once each is added."""
        new = value.encode() if isinstance(value, str) else value
        before = b""
        while True:
            found = self.compare_set(key, before, before + new)
            if found == before + new:
                return
            before = found

    def delete_key(self, key: str) -> bool:
        with _translated():
            return self._store.delete_key(key)

    def num_keys(self) -> int:
        with _translated():
            return self._store.num_keys()

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of the keys, once all are there."""
        limit = self._limit()
        with _translated():
            self._store.wait(keys, limit)
            return [self._store.get(key, limit) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Whether there are `append`, `multi_get` and `multi_set`."""
        return True

    def clone(self) -> AgentStore:
        """This store itself, which may be used from any thread."""
        return self

    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def _limit(self) -> float:
        return float(self.timeout.total_seconds())


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except StoreError as e:
        raise DistStoreError(str(e)) from e
