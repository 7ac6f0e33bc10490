"""The directories of local etcds whose owners were killed: found at the next start, and removed.

Adapter. Whoever owns such a directory holds a lock on a file in it for as long as it lives; the kernel
lets the lock go with the process, however that ends. So a lock that can be had is that of a dead owner. A
directory without the file is let alone: nobody can tell whose it is.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["owned", "sweep"]

_LOCK = "owner.lock"


@contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Mark the directory as that of this process, for the length of the block."""
    fresh = directory / f"{_LOCK}.new"
    with fresh.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh.rename(directory / _LOCK)  # locked from the moment at which others can see it
        yield


def sweep(prefix: str) -> list[Path]:
    """Remove this user's temporary directories with that prefix whose owners are dead; returns them."""
    removed = []
    for directory in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
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
