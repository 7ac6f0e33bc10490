"""Worker processes that report: in a session of their own, a few lines of Python, ended by their owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from elastic.timer.watch import Overdue, WorkerWatch

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0
"""Seconds after which a test fails that waits for something; nothing should take a tenth of it."""


class Worker:
    """`lines` as a process, which ends with the block; what it prints can be read line by line."""

    def __init__(self, lines: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", lines],
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def says(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def watching(watch: WorkerWatch) -> Iterator[WorkerWatch]:
    try:
        yield watch
    finally:
        watch.close()


def follow(watch: WorkerWatch, until: Callable[[list[Overdue]], bool]) -> tuple[list[Overdue], int]:
    """Do as the agent's loop does, until that holds of all that was overdue; and how often it woke up."""
    overdue: list[Overdue] = []
    wakes = 0
    give_up = time.monotonic() + PATIENCE
    while not until(overdue):
        at = watch.wakeup()
        left = (give_up if at is None else min(at, give_up)) - time.monotonic()
        select.select([watch], [], [], max(0.0, left))
        assert time.monotonic() < give_up, f"waited for something else than {overdue}"
        wakes += 1
        overdue += watch.poll()
    return overdue, wakes
