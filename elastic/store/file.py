"""A store in a file that its users share: on one host, or on a file system that several have mounted.

There is no server and no thread. See :mod:`elastic.store.shared_log` for what is in the file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from .api import Store, StoreError, StoreTimeoutError, not_set
from .durations import DEFAULT_TIMEOUT, Duration
from .file_watch import FileWatch
from .semantics import Refused, added, compared, encoded, paired, several, swaps
from .shared_log import SharedLog

T = TypeVar("T")


class FileStore(Store):
    """Keys live in the file `file_name`, made if there is none, which stays until somebody deletes it.

    Every use of a store should have a file of its own: what an earlier one has left in it counts.
    `world_size` is taken, as other stores of this name do, and has no effect. What a call has written
    outlives the process, however it ends; it is not forced to the disk, so a power failure may lose it.

    A waiting call learns of a change by its own host at once, and of one by another host in half a second.
    The file system must have locks (`flock`), as NFS, GPFS and Lustre (mounted with `flock`) have.
    """

    def __init__(
        self,
        file_name: str | os.PathLike[str],
        world_size: int = -1,  # noqa: ARG002 -- for callers of other stores of this name
        *,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> None:
        super().__init__(timeout=timeout)
        self._log = SharedLog(Path(file_name).resolve())
        with self._values():
            pass

    @property
    def path(self) -> str:
        """The file."""
        return str(self._log.path)

    @property
    def instance(self) -> str:
        return self._log.instance.hex()

    # -- reading ----------------------------------------------------------------------------------------

    def peek(self, key: str) -> bytes | None:
        with self._values() as values:
            return values.get(key.encode())

    def get(self, key: str, timeout: Duration | None = None) -> bytes:
        return self.multi_get([key], timeout)[0]

    def multi_get(self, keys: Sequence[str], timeout: Duration | None = None) -> list[bytes]:
        names = [key.encode() for key in several(keys)]
        limit = self._limit(timeout)
        found = self._look(lambda values: _all_of(values, names), limit)
        if found is None:
            raise self._timed_out(keys, limit)
        return found

    def wait(self, keys: Sequence[str], timeout: Duration | None = None) -> None:
        self.multi_get(keys, timeout)

    def wait_change(self, key: str, known: bytes | None, timeout: Duration | None = None) -> bool:
        name = key.encode()
        return bool(self._look(lambda values: values.get(name) != known or None, self._limit(timeout)))

    def check(self, keys: Sequence[str]) -> bool:
        with self._values() as values:
            return all(key.encode() in values for key in several(keys))

    def list_keys(self) -> list[str]:
        with self._values() as values:
            return sorted(key.decode() for key in values)

    def num_keys(self) -> int:
        with self._values() as values:
            return len(values)

    # -- writing ----------------------------------------------------------------------------------------

    def set(self, key: str, value: str | bytes) -> None:
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        changes = {key.encode(): encoded(value) for key, value in paired(keys, values)}
        with self._values():
            if changes:
                self._log.write(changes)

    def append(self, key: str, value: str | bytes) -> None:
        name, addition = key.encode(), encoded(value)
        with self._values() as values:
            self._log.write({name: values.get(name, b"") + addition})

    def add(self, key: str, amount: int) -> int:
        name = key.encode()
        with self._values() as values:
            try:
                total = added(key, values.get(name), amount)
            except Refused as e:
                raise StoreError(str(e)) from None
            self._log.write({name: str(total).encode()})
            return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        name, old, new = key.encode(), encoded(expected), encoded(desired)
        with self._values() as values:
            current = values.get(name)
            if swaps(current, old):
                self._log.write({name: new})
            return compared(current, old, new)

    def delete_key(self, key: str) -> bool:
        name = key.encode()
        with self._values() as values:
            if name not in values:
                return False
            self._log.write({name: None})
            return True

    def close(self) -> None:
        """Close the file, which stays. A blocked call raises StoreError within half a second."""
        self._log.close()

    # -- looking ----------------------------------------------------------------------------------------

    @contextmanager
    def _values(self) -> Iterator[Mapping[bytes, bytes]]:
        with self._log.locked(timeout=self._limit(None)) as values:
            yield values

    def _look(self, look: Callable[[Mapping[bytes, bytes]], T | None], limit: float) -> T | None:
        """What `look` finds in the values, as soon as it finds anything; None where it does not in time."""
        deadline = time.monotonic() + limit
        with self._values() as values:
            found = look(values)
        if found is not None or limit <= 0:
            return found
        with FileWatch(self._log.path) as watch:
            while True:
                watch.arm()
                with self._values() as values:
                    found = look(values)
                left = deadline - time.monotonic()
                if found is not None or left <= 0:
                    return found
                watch.wait(left)

    def _timed_out(self, keys: Sequence[str], limit: float) -> StoreTimeoutError:
        with self._values() as values:
            missing = [
                key for key in keys if key.encode() not in values
            ] or keys  # they may have come just now
        return not_set(missing, limit)


def _all_of(values: Mapping[bytes, bytes], names: Sequence[bytes]) -> list[bytes] | None:
    found = [values[name] for name in names if name in values]
    return found if len(found) == len(names) else None
