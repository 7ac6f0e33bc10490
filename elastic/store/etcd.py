"""A store over a prefix of etcd.

Waits are watches: nothing polls. All keys are written under one lease given at construction, if
any, so that they go when it does.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator, Sequence, Set
from datetime import timedelta

from elastic import etcd
from elastic.etcd import Client, EtcdError, WatchBatch, WatchEnded
from elastic.store.api import Store, StoreError, StoreTimeoutError

_GETS = 100  # in one transaction: etcd allows 128


class EtcdStore(Store):
    """Keys live at `<prefix><key>`. Uses the client, and does not close it."""

    def __init__(
        self, client: Client, prefix: str, *, lease: int = 0, timeout: timedelta = timedelta(minutes=5)
    ) -> None:
        super().__init__(timeout=timeout)
        self._client = client
        self._prefix = prefix
        self._lease = lease

    def set(self, key: str, value: str | bytes) -> None:
        with _translated(key):
            self._client.put(self._name(key), _bytes(value), lease=self._lease)

    def get(self, key: str) -> bytes:
        self.wait([key])
        with _translated(key):
            kv = self._client.get(self._name(key))
        if kv is None:
            raise StoreError(f"key {key!r} was deleted while it was read")
        return kv.value

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        limit = (self.timeout if timeout is None else timeout).total_seconds()
        deadline = time.monotonic() + limit
        while missing := self._missing(keys):
            names, revision = missing
            if not self._wait_for_one(names, revision + 1, deadline):
                text = ", ".join(repr(key) for key in keys if self._name(key) in names)
                raise StoreTimeoutError(f"not set within {limit:g} s: {text}")

    def check(self, keys: Sequence[str]) -> bool:
        return self._missing(keys) is None

    def add(self, key: str, amount: int) -> int:
        name = self._name(key)
        with _translated(key):
            while True:
                kv = self._client.get(name)
                total = amount + (0 if kv is None else _number(key, kv.value))
                guard = etcd.modified_at(name, 0 if kv is None else kv.mod_revision)
                put = etcd.Put(name, str(total).encode(), self._lease)
                if self._client.txn([guard], [put]).succeeded:
                    return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        name, old, new = self._name(key), _bytes(expected), _bytes(desired)
        guard = etcd.value_is(name, old) if old else etcd.absent(name)
        with _translated(key):
            result = self._client.txn([guard], [etcd.Put(name, new, self._lease)], [etcd.Get(name)])
        if result.succeeded:
            return new
        found = result.responses[0]
        return found.kvs[0].value if isinstance(found, etcd.GetResult) and found.kvs else old

    def delete_key(self, key: str) -> bool:
        with _translated(key):
            return self._client.delete(self._name(key)).deleted > 0

    def num_keys(self) -> int:
        with _translated(self._prefix):
            return len(self._client.get_prefix(self._prefix.encode(), keys_only=True).kvs)

    def _name(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _missing(self, keys: Sequence[str]) -> tuple[Set[bytes], int] | None:
        """Which keys are not there, and a revision at which that was so; None where all are.

        Where there are more than fit into one transaction, it is the revision of the first one's answer.
        """
        names = [self._name(key) for key in keys]
        missing, revisions = set(names), []
        for start in range(0, len(names), _GETS):
            with _translated(", ".join(keys[start : start + _GETS])):
                result = self._client.txn([], [etcd.Get(name) for name in names[start : start + _GETS]])
            missing -= {kv.key for r in result.responses if isinstance(r, etcd.GetResult) for kv in r.kvs}
            revisions.append(result.revision)
        return (missing, min(revisions)) if missing else None

    def _wait_for_one(self, names: Set[bytes], revision: int, deadline: float) -> bool:
        """Whether any of these keys changes before the deadline; changes from `revision` on count."""
        news: queue.SimpleQueue[object] = queue.SimpleQueue()
        watch = self._client.watch(sorted(names), into=news, start_revision=revision)
        try:
            while True:
                item = news.get(timeout=max(0.0, deadline - time.monotonic()))
                # A watch that has ended (compacted, say) is no loss: the keys are read again.
                if isinstance(item, (WatchBatch, WatchEnded)):
                    return True
        except queue.Empty:
            return False
        finally:
            watch.close()


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except EtcdError as e:
        raise StoreError(f"{what}: {e}") from e


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _number(key: str, value: bytes) -> int:
    try:
        return int(value)
    except ValueError:
        raise StoreError(f"key {key!r} holds {value!r}, which is no number to add to") from None
