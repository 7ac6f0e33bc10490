"""A module that a fork server imports. What it does when it is imported depends on the environment."""

import os
import sys
import threading
import time
from pathlib import Path

IMPORTED_BY = os.getpid()
THREADS = os.environ.get("OMP_NUM_THREADS")
RANK = os.environ.get("RANK")

print("imported", flush=True)
match os.environ.get("WHEN_IMPORTED"):
    case "raise":
        raise ValueError("no luck with the import")
    case "leave":
        sys.exit(5)
    case "crash":
        os.abort()
    case "wait":
        Path(os.environ["MARK_FILE"]).touch()
        time.sleep(1000)
    case "thread":
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def family() -> tuple[int, int, int, int]:
    """Who imported this, this process, its parent, and its session."""
    return IMPORTED_BY, os.getpid(), os.getppid(), os.getsid(0)


def settings() -> tuple[str | None, str | None, str | None]:
    """OMP_NUM_THREADS and RANK when this was imported, and RANK now."""
    return THREADS, RANK, os.environ.get("RANK")
