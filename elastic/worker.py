"""For the script that a worker runs: notice of a restart that is near, and reports to the agent.

Notice is given so that no step is lost by a restart:

    import elastic.worker

    notice = elastic.worker.notice()
    while training:
        step()
        if agreed_by_all_ranks(notice.pending):
            save_checkpoint()         # and a barrier, so that every rank has saved
            notice.acknowledge()
            notice.wait_for_end()     # the agent stops this worker, and starts it again in the new world

Every node of the world gives notice at about the same time, but a rank may see it a step before another
does: let the ranks agree, for instance by an all-reduce with MIN, before they act on it. Without
``--notice-timeout``, and without ``elastic``, there is never a notice, and all of this does nothing.

Reports let the agent see a worker that is stuck or slower than the others:

    with elastic.worker.deadline(600, "load checkpoint"):   # later than that, this worker has failed
        load()
    for batch in batches:
        with elastic.worker.section("forward"):             # compared between ranks, under this name
            loss = model(batch)
        ...
        elastic.worker.step()                               # a step has ended

Ranks that wait for each other in every step take equally long for it: a section that leaves the waiting out
shows which of them is slow. Work that a device does later counts where the script waits for it. A report
takes some millionths of a second, waits for nothing and raises nothing; without an agent it does nothing.

Standard library only. Scripts in other languages can have notice by hand: it is there when the file
``$ELASTIC_NOTICE_FILE`` exists (JSON: ``reason``, ``deadline``), and
``basename "$ELASTIC_NOTICE_FILE" > "$ELASTIC_NOTICE_ACKNOWLEDGE"`` acknowledges it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from elastic.timer.api import TimerClient, expires, place_of_caller
from elastic.timer.slate import Slate

__all__ = ["Notice", "deadline", "heartbeat", "notice", "section", "step"]

_LONGEST_STOP = 60.0  # seconds from the deadline until a worker that waits to be stopped gives up waiting


class Notice:
    """The notice to one worker, whether it has come or not. Looking at it costs one look at a file's name.

    `file` is there once the notice has come; `acknowledge` is the pipe to the agent. Without them there is
    never a notice.
    """

    def __init__(self, file: str | os.PathLike[str] | None, pipe: str | os.PathLike[str] | None) -> None:
        self._file = None if file is None else Path(file)
        self._pipe = None if pipe is None else Path(pipe)

    @property
    def pending(self) -> bool:
        """Whether this worker will be stopped soon, and the agent waits for its acknowledgement."""
        return self._file is not None and self._file.exists()

    @property
    def reason(self) -> str:
        """Why, in words; empty while there is no notice."""
        return str(self._content().get("reason", ""))

    @property
    def deadline(self) -> float | None:
        """When the agent stops waiting, as `time.monotonic()` on this machine; None: there is no notice."""
        deadline = self._content().get("deadline")
        return None if deadline is None else float(deadline)

    def acknowledge(self) -> None:
        """Tell the agent that this worker may be stopped now. It does nothing where there is no notice.

        Do it only when whatever must not be lost is saved, on every rank: the first node whose workers have
        all acknowledged stops them, and then the others are stopped too. May be called again.
        """
        if self._file is None or self._pipe is None or not self.pending:
            return
        try:
            fd = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return  # the agent is gone, and this worker soon will be
        try:
            os.write(fd, self._file.name.encode() + b"\n")
        except BlockingIOError:
            return  # thousands of others were not read yet: the agent goes by the deadline
        finally:
            os.close(fd)

    def wait_for_end(self) -> None:
        """Do nothing until the agent stops this worker, at the latest a while after the deadline.

        To be called after `acknowledge`, where further steps would be lost. It returns at once where there
        is no notice.
        """
        deadline = self.deadline
        if deadline is not None:
            # SIGTERM comes long before, and ends it by the script's own handler or without one.
            time.sleep(max(0.0, deadline - time.monotonic()) + _LONGEST_STOP)

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads((self._file or Path(os.devnull)).read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def notice() -> Notice:
    """The notice to this worker, as its environment names it."""
    return Notice(os.environ.get("ELASTIC_NOTICE_FILE"), os.environ.get("ELASTIC_NOTICE_ACKNOWLEDGE"))


class _Reports(TimerClient):
    """What this process tells its agent; to nobody, where there is no `pipe`."""

    def __init__(self, pipe: str | None) -> None:
        self.slate = Slate(pipe, signal=signal.SIGKILL) if pipe else None

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        if self.slate is not None:
            self.slate.acquire(scope_id, expiration_time, max(0.0, expiration_time - time.monotonic()))

    def release(self, scope_id: str) -> None:
        if self.slate is not None:
            self.slate.release(scope_id)


@cache
def _reports() -> _Reports:
    return _Reports(os.environ.get("ELASTIC_REPORTS"))


def heartbeat() -> None:
    """Give a sign of life, for an agent that expects one now and then. Every other report is one too."""
    slate = _reports().slate
    if slate is not None:
        slate.beat()


def step() -> None:
    """Say that a step has ended. The time since the call before is how long it took."""
    slate = _reports().slate
    if slate is not None:
        slate.step()


@contextmanager
def section(name: str) -> Iterator[None]:
    """Report how long the block takes, however it ends, under a name that is the same on every rank.

    Names longer than 32 bytes are cut; a process may have 15 of them.
    """
    slate = _reports().slate
    began = time.monotonic()
    try:
        yield
    finally:
        if slate is not None:
            slate.record(name, time.monotonic() - began)


def deadline(after: float | timedelta, scope: str | None = None) -> AbstractContextManager[None]:
    """Have the block end within `after` (seconds, or a timedelta), or this worker counts as failed.

    The agent enforces it, and then restarts the workers as after any other failure; `scope` is what it calls
    the block (default: file and line). A block that ends late all the same raises TimeoutError, with or
    without an agent. ValueError where `after` is not a positive time.
    """
    if scope is None:
        scope = place_of_caller()
    return expires(after, scope, _reports())
