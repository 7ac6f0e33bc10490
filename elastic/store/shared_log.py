"""The file of a FileStore: read and written under its lock, by any number of processes and hosts.

The lock is the kernel's, on the file itself, so that it goes with its holder, however that one ends. Every
change is one record at the end. A file that has grown far beyond its values is written anew under another
name, which then takes its place; who has the old one open sees that, and turns to the new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import records
from .api import StoreError

log = logging.getLogger(__name__)

_RETRIES = (0.001, 0.05)  # seconds between tries for the lock: at first, and at most
_CHUNK = 1 << 20
_COMPACT_FROM = 1 << 20  # bytes
_COMPACT_FACTOR = 4
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


class SharedLog:
    """The values in a file, which is made where there is none. Close it after use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.instance = b""
        self._values: dict[bytes, bytes] = {}
        self._offset = 0
        self._file = -1
        self._compact_from = _COMPACT_FROM
        self._closed = False
        self._process = os.getpid()
        self._threads = threading.Lock()

    @contextlib.contextmanager
    def locked(self, *, timeout: float) -> Iterator[Mapping[bytes, bytes]]:
        """All values as they are now, with nobody else writing. Raises StoreError."""
        if self._process != os.getpid():
            self._after_fork()
        deadline = time.monotonic() + timeout
        if not self._threads.acquire(timeout=timeout):
            raise self._stuck(timeout)
        try:
            if self._closed:
                raise StoreError(f"the store in {self.path} is closed")
            self._acquire(deadline, timeout)
            try:
                self._catch_up()
                yield self._values
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        except records.NotOurs as e:
            raise StoreError(
                f"the file {self.path} does not begin as a store's file, and is left alone: give another path"
            ) from e
        except records.Damaged as e:
            raise StoreError(
                f"the store's file {self.path} is damaged, {e}: delete it and start the job anew"
            ) from e
        except OSError as e:
            raise StoreError(f"the store's file {self.path} cannot be used: {e.strerror or e}") from e
        finally:
            self._threads.release()

    def write(self, changes: records.Changes) -> None:
        """Make changes; to be called while locked. When it has returned, they outlive this process."""
        self._append(records.record(changes))
        records.apply(changes, self._values)
        if self._offset > self._compact_from:
            live = sum(len(key) + len(value) for key, value in self._values.items())
            self._compact_from = max(_COMPACT_FROM, _COMPACT_FACTOR * live)
            if self._offset > self._compact_from:
                self._compact()

    def close(self) -> None:
        """May be called again."""
        with self._threads:
            self._closed = True
            self._shut()

    def _acquire(self, deadline: float, timeout: float) -> None:
        """Opens the file that is at the path now, and locks it."""
        pause = _RETRIES[0]
        while True:
            if self._file < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self.path, flags, 0o600)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # The kernel can block until the lock is free, but not for a limited time.
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._stuck(timeout) from None
                time.sleep(min(left, pause))
                pause = min(_RETRIES[1], 2 * pause)
                continue
            except OSError as e:
                if e.errno in _NO_LOCKS:
                    raise StoreError(
                        f"the file system of {self.path} has no locks ({e.strerror}): "
                        "use another one, or a TCPStore"
                    ) from e
                raise
            if self._is_current():
                return
            self._shut()

    def _is_current(self) -> bool:
        mine = os.fstat(self._file)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def _catch_up(self) -> None:
        """Reads what others have written since."""
        instance = records.instance_of(os.pread(self._file, records.HEADER, 0))
        if instance is None:
            # It is new, or who made it was killed at once.
            os.ftruncate(self._file, 0)
            instance = secrets.token_bytes(records.INSTANCE)
            self._put(records.header(instance), 0)
        size = os.fstat(self._file).st_size
        if instance != self.instance or size < self._offset or not self._offset:
            self.instance = instance
            self._values.clear()
            self._offset = records.HEADER
        data = bytearray()
        while len(data) < size - self._offset:
            more = os.pread(self._file, _CHUNK, self._offset + len(data))
            if not more:
                break
            data += more
        self._offset += records.read(bytes(data), self._values, offset=self._offset)

    def _append(self, data: bytes) -> None:
        # Who was killed while it wrote has left a piece of a record.
        if os.fstat(self._file).st_size > self._offset:
            os.ftruncate(self._file, self._offset)
        try:
            self._put(data, self._offset)
        except OSError:
            os.ftruncate(self._file, self._offset)
            raise
        self._offset += len(data)

    def _put(self, data: bytes, at: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file, view, at)
            view, at = view[written:], at + written

    def _compact(self) -> None:
        """Writes the values into a new file, which takes the place of this one at once.

        Only who has the lock writes the new one, so one name will do, and nothing is left of a killed writer.
        """
        new = self.path.with_name(f"{self.path.name}.compact")
        try:
            with new.open("wb") as file:
                os.fchmod(file.fileno(), os.fstat(self._file).st_mode & 0o777)
                file.write(records.header(self.instance))
                for part in records.snapshot(self._values):
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as e:
            # The old file is as good as before, only longer.
            log.warning("the store's file %s cannot be made shorter: %s", self.path, e)

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._offset = -1, 0

    def _after_fork(self) -> None:
        """A child shares the open file, and with it the lock, with its parent: it opens its own."""
        self._shut()
        self._process = os.getpid()
        self._threads = threading.Lock()

    def _stuck(self, timeout: float) -> StoreError:
        return StoreError(f"the lock of the store's file {self.path} was not free within {timeout:g} s")
