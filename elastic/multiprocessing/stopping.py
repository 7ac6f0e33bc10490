"""Ends every process of a worker group, by the ladder of :mod:`elastic.multiprocessing.escalation`.

Non-blocking: it registers what it waits for with its owner's epoll, and performs due steps when asked to.
Signals go to all processes of all workers at once: a group that is stopped one by one takes as long as all
of them together, and its members see each other disappear.
"""

import os
import select
import signal
from collections.abc import Callable, Iterable

from elastic.multiprocessing import escalation
from elastic.multiprocessing.escalation import Escalation, Phase, Step
from elastic.multiprocessing.stacks import StackDump
from elastic.utils.tether import Process, open_pidfd, send_signal

_MOST_AWAITED = 256  # well below the usual limit of open files


class Stopping:
    """One run of the ladder, which begins with the signal, or with stacks that are written before it.

    Args:
        find: Returns the living processes of the group.
        epoll: Gets a descriptor for each of them; it is readable when the process has ended.
        death_signal: How to ask.
        grace: Seconds from now to the kill.
        now: Monotonic time.
        dump: Stacks that are being written; the signal waits for them.
    """

    def __init__(
        self,
        find: Callable[[], list[Process]],
        epoll: select.epoll,
        *,
        death_signal: int,
        grace: float,
        now: float,
        dump: StackDump | None = None,
    ) -> None:
        self._find = find
        self._epoll = epoll
        self._signal = death_signal
        self._awaited: dict[int, tuple[int, int]] = {}  # pidfd: id and start time
        self._seen: set[tuple[int, int]] = set()
        self._is_due = True
        self._kill_at = now + (0.0 if death_signal == signal.SIGKILL else grace)
        self._dump = dump
        self._ladder: Escalation | None = None
        self.survivors: list[Process] = []
        """What could not be killed, once :attr:`is_over`."""
        if dump is None or dump.until <= now:
            self._begin(now)

    @property
    def is_over(self) -> bool:
        """Whether the group is gone, or what is left of it was given up."""
        return self._ladder is not None and self._ladder.is_over

    @property
    def next_wakeup(self) -> float | None:
        """When to call :meth:`advance` at the latest, in monotonic seconds; None when it is over."""
        if self._is_due and not self.is_over:
            return 0.0  # ends were noted, but not yet acted upon
        if self._ladder is None:
            return None if self._dump is None else self._dump.until
        return self._ladder.next_wakeup

    @property
    def seen(self) -> set[int]:
        """The ids of all processes that were asked to end."""
        return {pid for pid, _ in self._seen}

    def hurry(self, death_signal: int, grace: float, now: float) -> None:
        """Ask again, and let the kill come earlier where ``grace`` says so; never later, nor after stacks."""
        if death_signal == signal.SIGKILL:
            grace = 0.0
        if self._ladder is None:
            self._signal, self._kill_at = death_signal, min(self._kill_at, now + grace)
            self._begin(now)
            return
        if death_signal not in {self._signal, signal.SIGKILL}:
            self._signal = death_signal
            self._ask(self._find())
        self._ladder = escalation.shorten(self._ladder, now, grace)

    def note(self, fd: int) -> bool:
        """Take an event of the epoll; False if the descriptor isn't one of ours."""
        if fd in self._awaited:
            self._forget(fd)
        elif self._dump is None or not self._dump.note(fd):
            return False
        self._is_due = True
        return True

    def advance(self, now: float) -> None:
        """Perform the due steps."""
        if self.is_over:
            return
        self._is_due = False
        if self._ladder is None and self._dump is not None and now < self._dump.until:
            return
        ladder = self._ladder or self._begin(now)
        if not self._awaited:  # all that we know of are gone: perhaps they had children since
            members = self._find()
            if ladder.phase is Phase.ASKED:
                self._ask(members)
            else:
                self._await(members)
        self._ladder, step = escalation.advance(ladder, now, living=len(self._awaited))
        if step is Step.KILL:
            members = self._find()
            for process in members:
                send_signal(process, signal.SIGKILL)
            self._await(members)
        if self._ladder.phase is Phase.ABANDONED:
            self.survivors = self._find()

    def close(self) -> None:
        """Close what it registered. The epoll stays open."""
        if self._dump is not None:
            self._dump.close()
        for fd in list(self._awaited):
            self._forget(fd)

    def _begin(self, now: float) -> Escalation:
        """Begin the ladder."""
        if self._dump is not None:
            self._dump.close()
            self._dump = None
        self._ladder = escalation.begin(now, self._kill_at - now)
        self._ask(self._find())
        return self._ladder

    def _ask(self, members: Iterable[Process]) -> None:
        members = list(members)
        for process in members:
            send_signal(process, self._signal)
        for process in members:
            if process.state in "Tt":  # a stopped process can't answer
                send_signal(process, signal.SIGCONT)
        self._await(members)

    def _await(self, members: Iterable[Process]) -> None:
        awaited = set(self._awaited.values())
        for process in members:
            key = (process.pid, process.started)
            self._seen.add(key)
            # Those beyond the bound are found again when these have ended.
            if key in awaited or len(self._awaited) >= _MOST_AWAITED:
                continue
            pidfd = open_pidfd(process)
            if pidfd is not None:
                self._awaited[pidfd] = key
                self._epoll.register(pidfd, select.EPOLLIN)

    def _forget(self, fd: int) -> None:
        del self._awaited[fd]
        self._epoll.unregister(fd)
        os.close(fd)
