"""What an agent's loop sees of its workers' timers and signs of life: a descriptor, a time, what is overdue.

The loop waits for :meth:`WorkerWatch.fileno` and until :meth:`WorkerWatch.wakeup`, then asks
:meth:`WorkerWatch.poll`, and treats what that returns as failures of those workers. Nothing is signalled
here, and no thread runs. A process counts as a part of a worker if it is in the session that the worker
leads, and each deadline of it as one of that worker; requests of any other process are refused.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastic.utils.processes import read_process
from elastic.utils.scratch import Scratch

from .deadlines import Deadlines
from .mailbox import FileTimerRequest, Mailbox
from .series import Series

MOST_PATIENCE = 10.0
"""Seconds that workers have at the most to catch up after the agent itself did not run."""

_OWN_DELAY = 1.0  # seconds by which a loop may wake up late without having been stopped


class What(enum.Enum):
    """What is overdue."""

    DEADLINE = "a deadline of its own"
    SIGN_OF_LIFE = "another sign of life"
    FIRST_REPORT = "its first report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A worker that did not do in time what it should. `allowed` and `late` are seconds.

    `pid` is the process that is overdue: the worker, or one that it started.
    """

    local_rank: int
    pid: int
    what: What
    allowed: float
    late: float
    scope: str = ""

    def sentence(self, rank: int) -> str:
        """The same in words. `rank` is the worker's global rank."""
        match self.what:
            case What.DEADLINE:
                allowed = f", {self.allowed:.3g} s," if self.allowed else ""
                return f"the deadline {self.scope!r} of rank {rank}{allowed} has passed {self.late:.2g} s ago"
            case What.SIGN_OF_LIFE:
                return f"rank {rank} gave no sign of life for {self.allowed + self.late:.3g} s"
            case What.FIRST_REPORT:
                seconds = self.allowed + self.late
                return f"rank {rank} has reported nothing in the {seconds:.3g} s since its start"


class WorkerWatch:
    """The watch of one agent over the workers of one round after another. The owner closes it.

    `first_report` is how many seconds a worker may take from its start to its first report of any kind, and
    `sign_of_life` how many may lie between two reports of a worker that has reported (0: any number). `path`
    is where the named pipe is made (None: in a new temporary directory); `for_torch`: torch's FileTimerClient
    is told of it too. Raises OSError where the files cannot be made, ValueError for a negative time.
    """

    def __init__(
        self,
        *,
        first_report: float = 0,
        sign_of_life: float = 0,
        path: str | os.PathLike[str] | None = None,
        for_torch: bool = False,
    ) -> None:
        for name, seconds in (("first_report", first_report), ("sign_of_life", sign_of_life)):
            if seconds < 0:
                raise ValueError(f"{name} is {seconds}: it must not be negative")
        self._first_report = first_report
        self._sign_of_life = sign_of_life
        self._for_torch = for_torch
        self._scratch = Scratch("reports") if path is None else None
        self._pipe = self._scratch.path / "bell" if self._scratch is not None else Path(path or "")
        try:
            self._mailbox = Mailbox(self._pipe)
        except OSError:
            self._remove_directory()
            raise
        self._clear()

    def environment(self) -> dict[str, str]:
        """The variables by which workers, and whatever they start, find the watch."""
        env = {"ELASTIC_REPORTS": str(self._pipe)}
        if self._for_torch:
            env["TORCHELASTIC_TIMER_FILE"] = str(self._pipe)
        return env

    def begin(self, pids: Mapping[int, int]) -> None:
        """Watch the workers that were just started: process ids by local rank. Earlier ones are forgotten."""
        self._clear(pids)
        self._receive()
        self._register(self._mailbox.open_deadlines())  # what was told of before there was a worker to watch

    def end(self) -> None:
        """The workers are being stopped, or have ended: from now on nothing is overdue."""
        self._clear()

    def fileno(self) -> int:
        """Readable when a worker has something new to say."""
        return self._mailbox.fileno()

    def wakeup(self) -> float | None:
        """When to poll at the latest, in monotonic seconds; None: only when `fileno` is readable."""
        if not self._sessions:
            return None
        times = [self._deadlines.next(), self._mailbox.next_look(time.monotonic())]
        if self._first_report and self._silent:
            times.append(self._began + self._first_report)
        if self._sign_of_life:
            times += [at + self._sign_of_life for rank, at in self._last.items() if rank not in self._told]
        earliest = min((at for at in times if at is not None), default=None)
        return None if earliest is None else max(earliest, self._patient_until)

    def poll(self) -> list[Overdue]:
        """What has become overdue since the last call; each of it once. Never blocks.

        Where the caller itself comes late its machine may have been frozen, and the workers with it: then
        they have as long again, up to `MOST_PATIENCE`.
        """
        planned, now = self.wakeup(), time.monotonic()
        if planned is not None and now - planned > _OWN_DELAY:
            self._patient_until = now + min(now - planned, MOST_PATIENCE)
        self._receive()
        if now < self._patient_until:
            return []
        return self._expired(now) + self._silent_too_long(now)

    def series(self) -> dict[str, dict[int, Series]]:
        """The times that workers measured, by name and local rank; of a worker's processes, the busiest."""
        found: dict[str, dict[int, Series]] = {}
        for pid, name, series in self._mailbox.series():
            local_rank = self._local_rank(pid)
            if local_rank is not None:
                ranks = found.setdefault(name, {})
                if local_rank not in ranks or ranks[local_rank].count < series.count:
                    ranks[local_rank] = series
        return found

    def close(self) -> None:
        """Remove all files. May be called again."""
        self._clear()
        self._mailbox.close()
        self._remove_directory()

    # -- within ------------------------------------------------------------------------------------

    def _clear(self, pids: Mapping[int, int] | None = None) -> None:
        self._began = time.monotonic()
        self._pids = dict(pids or {})
        self._sessions = {pid: local_rank for local_rank, pid in self._pids.items()}
        self._deadlines: Deadlines[FileTimerRequest] = Deadlines()
        self._silent = set(self._pids)
        self._last: dict[int, float] = {}
        self._told: set[int] = set()
        self._patient_until = 0.0

    def _receive(self) -> None:
        requests = self._mailbox.receive()
        signs = self._mailbox.signs_of_life()
        self._register(requests)
        for request in requests:
            signs.setdefault(request.worker_pid, time.monotonic())
        for pid, at in signs.items():
            rank = self._local_rank(pid)
            if rank is not None and at > self._last.get(rank, 0.0):
                self._last[rank] = at
                self._silent.discard(rank)
                self._told.discard(rank)

    def _register(self, requests: list[FileTimerRequest]) -> None:
        self._deadlines.register(
            r for r in requests if r.is_release or self._local_rank(r.worker_pid) is not None
        )

    def _local_rank(self, pid: int) -> int | None:
        """The worker that the living process is a part of; None where it is of none of them."""
        process = read_process(pid) if self._sessions else None
        return None if process is None or process.is_dead else self._sessions.get(process.session)

    def _expired(self, now: float) -> list[Overdue]:
        found = []
        for pid, requests in self._deadlines.expired(now).items():
            self._deadlines.clear([pid])
            rank = self._local_rank(pid)
            if rank is not None:
                first = requests[0]
                found.append(
                    Overdue(
                        local_rank=rank,
                        pid=pid,
                        what=What.DEADLINE,
                        allowed=first.allowed,
                        late=now - first.expiration_time,
                        scope=first.scope_id,
                    )
                )
        return found

    def _silent_too_long(self, now: float) -> list[Overdue]:
        found = []
        if self._first_report and now >= self._began + self._first_report:
            late = now - self._began - self._first_report
            for rank in sorted(self._silent):
                found += self._overdue(rank, What.FIRST_REPORT, self._first_report, late)
            self._silent.clear()
        if self._sign_of_life:
            for rank, at in sorted(self._last.items()):
                late = now - at - self._sign_of_life
                if rank not in self._told and late >= 0:
                    self._told.add(rank)
                    found += self._overdue(rank, What.SIGN_OF_LIFE, self._sign_of_life, late)
        return found

    def _overdue(self, rank: int, what: What, allowed: float, late: float) -> list[Overdue]:
        """As a list, which is empty for a worker that has ended: that says nothing any more."""
        pid = self._pids[rank]
        if self._local_rank(pid) is None:
            return []
        return [Overdue(local_rank=rank, pid=pid, what=what, allowed=allowed, late=late)]

    def _remove_directory(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
