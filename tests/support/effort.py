"""What a process costs while nothing happens: how often its threads wake up, and how long they run."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Effort:
    """Rates over a while: wake-ups of the main thread and of the others, and CPU, each per second."""

    main: float
    others: float
    cpu: float


def measure_effort(pid: int, *, seconds: float, without: Collection[str] = ()) -> Effort:
    """Watch a process for so long. Of a thread that ends meanwhile nothing is counted.

    Nor is anything of other threads than the main one whose ids are among `without`.
    """
    started, before = time.monotonic(), _threads(pid)
    time.sleep(seconds)
    after, took = _threads(pid), time.monotonic() - started
    after = {thread: now for thread, now in after.items() if thread == str(pid) or thread not in without}
    wakeups = {thread: now[0] - before.get(thread, (0, 0))[0] for thread, now in after.items()}
    cpu = sum(now[1] - before.get(thread, (0, 0))[1] for thread, now in after.items())
    main = wakeups.pop(str(pid))
    return Effort(main=main / took, others=sum(wakeups.values()) / took, cpu=cpu / 1e9 / took)


def _threads(pid: int) -> dict[str, tuple[int, int]]:
    """Of each thread: how often it gave up the CPU to wait, and for how many nanoseconds it ran."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        waits = next(line for line in lines if line.startswith("voluntary_ctxt_switches"))
        ran = (task / "schedstat").read_text().split()[0]
        found[task.name] = int(waits.split()[1]), int(ran)
    return found
