"""Temporary directories of a process, and those that were left by processes that were killed.

Adapter. Whoever owns such a directory holds a lock on a file in it for as long as it lives; the kernel
lets the lock go with the process, however that ends. So a lock that can be had is that of a dead owner. A
directory without the file is let alone: nobody can tell whose it is.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

__all__ = ["Scratch", "sweep"]

_PREFIX = "elastic-"  # what the names of all such directories begin with
_LOCK = ".owner"


class Scratch:
    """A new temporary directory at `path`, removed by `close`. `kind` goes into its name.

    Raises OSError where it cannot be made.
    """

    def __init__(self, kind: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        fresh = self.path / f"{_LOCK}.new"
        self._lock: IO[str] = fresh.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fresh.rename(self.path / _LOCK)  # locked from the moment at which others can see it

    def close(self) -> None:
        """Remove it with all that is in it. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def sweep() -> list[Path]:
    """Remove this user's temporary directories whose owners are dead; returns them."""
    removed = []
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            with (directory / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)
        except OSError:  # without the file, still owned, or gone meanwhile by another's hand
            continue
        removed.append(directory)
    return removed
