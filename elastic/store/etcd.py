"""A store over a prefix of etcd.

Waits are watches: nothing polls. All keys are written under one lease given at construction, if
any, so that they go when it does.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator, Sequence, Set

from elastic import etcd
from elastic.etcd import Client, EtcdError, WatchBatch, WatchEnded

from .api import Store, StoreError, not_set
from .durations import DEFAULT_TIMEOUT, Duration
from .semantics import Refused, added, compared, encoded, paired, several, swaps

_AT_ONCE = 100  # in one transaction: etcd allows 128


class EtcdStore(Store):
    """Keys live at `<prefix><key>`. Uses the client, and does not close it."""

    def __init__(
        self, client: Client, prefix: str, *, lease: int = 0, timeout: Duration = DEFAULT_TIMEOUT
    ) -> None:
        super().__init__(timeout=timeout)
        self._client = client
        self._prefix = prefix
        self._lease = lease

    def peek(self, key: str) -> bytes | None:
        with _translated(key):
            kv = self._client.get(self._name(key))
        return None if kv is None else kv.value

    def get(self, key: str, timeout: Duration | None = None) -> bytes:
        limit = self._limit(timeout)
        deadline = time.monotonic() + limit
        while (value := self.peek(key)) is None:
            # It is read again where it was deleted since it came.
            self._wait([key], deadline, limit)
        return value

    def multi_get(self, keys: Sequence[str], timeout: Duration | None = None) -> list[bytes]:
        limit = self._limit(timeout)
        deadline = time.monotonic() + limit
        while True:
            self._wait(keys, deadline, limit)
            found: dict[bytes, bytes] = {}
            for kvs, _ in self._read(keys):
                found |= kvs
            if len(found) == len(set(keys)):
                return [found[self._name(key)] for key in keys]

    def wait(self, keys: Sequence[str], timeout: Duration | None = None) -> None:
        limit = self._limit(timeout)
        self._wait(keys, time.monotonic() + limit, limit)

    def wait_change(self, key: str, known: bytes | None, timeout: Duration | None = None) -> bool:
        name, deadline = self._name(key), time.monotonic() + self._limit(timeout)
        while True:
            with _translated(key):
                result = self._client.get_range(etcd.key(name))
            value = result.kvs[0].value if result.kvs else None
            if value != known:
                return True
            if not self._wait_for_one({name}, result.revision + 1, deadline):
                return False

    def _wait(self, keys: Sequence[str], deadline: float, limit: float) -> None:
        while missing := self._missing(keys):
            names, revision = missing
            if not self._wait_for_one(names, revision + 1, deadline):
                raise not_set([key for key in keys if self._name(key) in names], limit)

    def check(self, keys: Sequence[str]) -> bool:
        return self._missing(keys) is None

    def set(self, key: str, value: str | bytes) -> None:
        with _translated(key):
            self._client.put(self._name(key), encoded(value), lease=self._lease)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        # One transaction may write a key only once: the last value counts.
        puts = [
            etcd.Put(self._name(key), value, self._lease)
            for key, value in {key: encoded(value) for key, value in paired(keys, values)}.items()
        ]
        for start in range(0, len(puts), _AT_ONCE):
            with _translated(", ".join(keys)):
                self._client.txn([], puts[start : start + _AT_ONCE])

    def append(self, key: str, value: str | bytes) -> None:
        addition = encoded(value)
        self._change(key, lambda current: (current or b"") + addition)

    def add(self, key: str, amount: int) -> int:
        return int(self._change(key, lambda current: str(added(key, current, amount)).encode()))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        name, old, new = self._name(key), encoded(expected), encoded(desired)
        while True:
            guard = etcd.value_is(name, old) if old else etcd.absent(name)
            with _translated(key):
                result = self._client.txn([guard], [etcd.Put(name, new, self._lease)], [etcd.Get(name)])
            if result.succeeded:
                return new
            found = result.responses[0]
            kvs = found.kvs if isinstance(found, etcd.GetResult) else ()
            current = kvs[0].value if kvs else None
            if not swaps(current, old):
                return compared(current, old, new)
            # An empty value as expected, or a change since: what is there now may be replaced.
            with _translated(key):
                if self._replace(name, kvs[0].mod_revision if kvs else 0, new):
                    return new

    def delete_key(self, key: str) -> bool:
        with _translated(key):
            return self._client.delete(self._name(key)).deleted > 0

    def list_keys(self) -> list[str]:
        prefix = self._prefix.encode()
        with _translated(self._prefix):
            found = self._client.get_prefix(prefix, keys_only=True).kvs
        return sorted(kv.key[len(prefix) :].decode() for kv in found)

    def num_keys(self) -> int:
        with _translated(self._prefix):
            return len(self._client.get_prefix(self._prefix.encode(), keys_only=True).kvs)

    def _name(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _missing(self, keys: Sequence[str]) -> tuple[Set[bytes], int] | None:
        """Which keys are not there, and a revision at which that was so; None where all are.

        Where there are more than fit into one transaction, it is the revision of the first one's answer.
        """
        missing, revisions = {self._name(key) for key in several(keys)}, []
        for found, revision in self._read(keys):
            missing -= found.keys()
            revisions.append(revision)
        return (missing, min(revisions)) if missing else None

    def _read(self, keys: Sequence[str]) -> Iterator[tuple[dict[bytes, bytes], int]]:
        """What there is of the keys, and the revision, in as few transactions as etcd allows."""
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            with _translated(", ".join(some)):
                result = self._client.txn([], [etcd.Get(self._name(key)) for key in some])
            got = [kv for r in result.responses if isinstance(r, etcd.GetResult) for kv in r.kvs]
            yield {kv.key: kv.value for kv in got}, result.revision

    def _change(self, key: str, rule: Callable[[bytes | None], bytes]) -> bytes:
        """Replaces the value at a key by what the rule makes of it; returns that."""
        name = self._name(key)
        with _translated(key):
            while True:
                kv = self._client.get(name)
                new = rule(None if kv is None else kv.value)
                if self._replace(name, 0 if kv is None else kv.mod_revision, new):
                    return new

    def _replace(self, name: bytes, revision: int, value: bytes) -> bool:
        """Whether the key was still at that revision, and so has the value now."""
        guard = etcd.modified_at(name, revision)
        return self._client.txn([guard], [etcd.Put(name, value, self._lease)]).succeeded

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
    except Refused as e:
        raise StoreError(str(e)) from None
