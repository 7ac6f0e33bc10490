"""Stores of torch and tensorplay as stores of ours.

They are known by the methods they have, so neither framework is imported here. Both block a whole store
object while one of its calls waits, so nothing here waits in them: what is not there yet is asked for every
`POLL_INTERVAL`. Their exceptions end here.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import secrets
import signal
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from .api import Store, StoreError, StoreTimeoutError, not_set, polled
from .durations import DEFAULT_TIMEOUT, Duration
from .semantics import Refused, added, encoded, paired, several

T = TypeVar("T")

_COMMON = ("get", "set", "add", "compare_set", "delete_key", "wait")
_TORCH = (*_COMMON, "check", "append", "num_keys", "has_extended_api")
_TENSORPLAY = (*_COMMON, "has", "compare_and_swap")


def as_store(store: Any) -> Store:
    """The store as one of ours: itself if it is, else one that uses it and does not close it.

    TypeError for what is neither a store of ours nor one of torch or tensorplay.
    """
    if isinstance(store, Store):
        return store
    for methods, wrapper in ((_TORCH, _TorchStore), (_TENSORPLAY, _TensorplayStore)):
        if all(callable(getattr(store, name, None)) for name in methods) and not isinstance(store, type):
            return wrapper(store)
    raise TypeError(f"{store!r} is no store: expected one of elastic.store, torch.distributed or tensorplay")


class _ForeignStore(Store):
    """What both kinds have in common."""

    def __init__(self, store: Any) -> None:
        timeout = getattr(store, "timeout", None)
        super().__init__(timeout=timeout if isinstance(timeout, timedelta | float | int) else DEFAULT_TIMEOUT)
        self._store = store

    @abstractmethod
    def _is_there(self, key: str) -> bool:
        """Whether the key is there now; may raise what the foreign store raises."""

    @abstractmethod
    def peek(self, key: str) -> bytes | None: ...

    def get(self, key: str, timeout: Duration | None = None) -> bytes:
        return self.multi_get([key], timeout)[0]

    def multi_get(self, keys: Sequence[str], timeout: Duration | None = None) -> list[bytes]:
        several(keys)
        found: list[bytes] = []

        def complete() -> bool:
            nonlocal found
            values = [self.peek(key) for key in keys]
            found = [value for value in values if value is not None]
            return len(found) == len(keys)

        limit = self._limit(timeout)
        if not polled(complete, limit):
            raise self._timed_out(keys, limit)
        return found

    def wait(self, keys: Sequence[str], timeout: Duration | None = None) -> None:
        limit = self._limit(timeout)
        if not polled(lambda: self.check(keys), limit):
            raise self._timed_out(keys, limit)

    def check(self, keys: Sequence[str]) -> bool:
        with _translated(keys):
            return all(self._is_there(key) for key in several(keys))

    def set(self, key: str, value: str | bytes) -> None:
        with _translated([key]):
            self._store.set(key, encoded(value))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in paired(keys, values):
            self.set(key, value)

    def add(self, key: str, amount: int) -> int:
        # One of them takes text for 0, and others break for good. A store that is used as a counter is not
        # made text meanwhile, so looking first does.
        current = self.peek(key)
        with _translated([key]):
            if current is not None:
                added(key, current, amount)
            return int(self._store.add(key, operator.index(amount)))

    def num_keys(self) -> int:
        with _translated(()):
            return int(self._store.num_keys())

    def _timed_out(self, keys: Sequence[str], limit: float) -> StoreTimeoutError:
        with _translated(keys):
            missing = [key for key in keys if not self._is_there(key)] or keys  # they may have come just now
        return not_set(missing, limit)


class _TorchStore(_ForeignStore):
    def _is_there(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def peek(self, key: str) -> bytes | None:
        # Where there is no such key, what was expected comes back, and nothing is stored. A value that
        # nobody else has ever had tells the two apart; to check and then get could block.
        never = secrets.token_bytes(16)
        with _translated([key]):
            value = bytes(self._store.compare_set(key, never, never))
        return None if value == never else value

    def set(self, key: str, value: str | bytes) -> None:
        super().set(key, value)
        self._make_sure(key)

    def append(self, key: str, value: str | bytes) -> None:
        with _translated([key]):
            if not self._store.has_extended_api():
                # torch makes it of compare_set there, whose answer doesn't tell whose value it is.
                raise StoreError(
                    f"{key!r}: {type(self._store).__name__} of torch may lose what is appended: "
                    "use its TCPStore, or a store of elastic.store"
                )
            self._store.append(key, encoded(value))
        self._make_sure(key)

    def _make_sure(self, key: str) -> None:
        """Nothing answers to a write of a TCPStore: others see it for sure after another answer."""
        with _translated([key]):
            self._store.check([key])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        with _translated([key]):
            return bytes(self._store.compare_set(key, encoded(expected), encoded(desired)))

    def delete_key(self, key: str) -> bool:
        # One of them says True for any key.
        with _translated([key]):
            return bool(self._store.check([key])) and bool(self._store.delete_key(key))

    def list_keys(self) -> list[str]:
        if not hasattr(self._store, "list_keys"):
            raise StoreError("a store of this version of torch cannot list its keys: use a newer one")
        with _translated(()):
            return sorted(self._store.list_keys())


class _TensorplayStore(_ForeignStore):
    def __init__(self, store: Any) -> None:
        super().__init__(_Undisturbed(store))

    def _is_there(self, key: str) -> bool:
        return bool(self._store.has(key))

    def peek(self, key: str) -> bytes | None:
        never = secrets.token_bytes(16)
        was_there = False
        with _translated([key]):
            while True:
                _, value = self._store.compare_and_swap(key, never, never)
                # It says nothing of whether a value is empty or not there; one may have come just now.
                if value or was_there:
                    return bytes(value)
                was_there = self._is_there(key)
                if not was_there:
                    return None

    def append(self, key: str, value: str | bytes) -> None:
        addition = encoded(value)
        current = self.peek(key) or b""
        with _translated([key]):
            while True:
                done, current = self._store.compare_and_swap(key, current, bytes(current) + addition)
                if done:
                    return

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        old, new = encoded(expected), encoded(desired)
        with _translated([key]):
            done, value = self._store.compare_and_swap(key, old, new)
        if done:
            return new
        if value:
            return bytes(value)
        found = self.peek(key)
        return old if found is None else found

    def delete_key(self, key: str) -> bool:
        with _translated([key]):
            there = self._is_there(key)
            self._store.delete_key(key)
            return there

    def list_keys(self) -> list[str]:
        raise StoreError(
            "a tensorplay store cannot list its keys: keep a list of them under a key of your own"
        )


class _Undisturbed:
    """A store whose every call is made on a thread of its own, which no signal reaches.

    A request of tensorplay's TCPStore fails when anything interrupts its thread, done or not: a signal, and
    the end of an io_uring that the thread has opened, as torch's TCPStore does.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return functools.partial(_on_a_quiet_thread, found) if callable(found) else found


def _on_a_quiet_thread(call: Callable[..., T], *args: Any) -> T:
    outcome: Future[T] = Future()

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            outcome.set_result(call(*args))
        except BaseException as e:
            outcome.set_exception(e)

    # A daemon: Ctrl-C leaves it behind, for as long as the store's timeout at most.
    thread = threading.Thread(target=run, name="elastic-store-request", daemon=True)
    thread.start()
    thread.join()
    return outcome.result()


@contextlib.contextmanager
def _translated(keys: Sequence[str]) -> Iterator[None]:
    what = ", ".join(map(repr, keys)) or "the store"
    try:
        yield
    except Refused as e:
        raise StoreError(str(e)) from None
    except (RuntimeError, ValueError, OSError) as e:  # all that torch and tensorplay raise of their stores
        text = str(e).partition("\n")[0]
        kind = StoreTimeoutError if isinstance(e, TimeoutError) or "timed out" in text.lower() else StoreError
        raise kind(f"{what}: {text}") from e
