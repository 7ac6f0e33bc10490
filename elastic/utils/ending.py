"""Ends a group of processes to the last descendant, by the ladder of :mod:`elastic.utils.escalation`.

The one way in which this project kills: workers, a node check, and what a dead agent leaves. Who belongs to
the group is looked up anew at each step. Signals go to all of it at once: a group that is stopped one by one
takes as long as all of its members together, and they see each other disappear.

:class:`Ending` never blocks: it registers what it waits for with its owner's epoll, and performs due steps
when asked to. :func:`end` is the same for a caller with nothing else to do. The standard library only, and
parts of ours that need no more: it also runs in the helper of a tether.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from elastic.utils import escalation
from elastic.utils.escalation import GIVE_UP_SECONDS, Escalation, Phase, Step
from elastic.utils.processes import Process, open_pidfd, send_signal

_MOST_AWAITED = 256  # well below the usual limit of open files


class Prelude(Protocol):
    """Something that must be over before the group is asked to end, such as stacks that are being written."""

    @property
    def until(self) -> float:
        """When it is over at the latest, in monotonic seconds. It may become earlier."""

    def note(self, fd: int) -> bool:
        """Take an event of the epoll; False if the descriptor isn't one of its own."""

    def close(self) -> None:
        """End it. The epoll stays open."""


class Ending:
    """One run of the ladder, which begins with the signal, or with a prelude to it.

    Args:
        find: Returns the living processes of the group.
        epoll: Gets a descriptor for each of them; it is readable when the process has ended.
        death_signal: How to ask.
        grace: Seconds from now to the kill.
        now: Monotonic time.
        give_up_after: Seconds from the first kill until what still lives is left alone.
        prelude: The signal waits for it. It is closed here.
    """

    def __init__(
        self,
        find: Callable[[], list[Process]],
        epoll: select.epoll,
        *,
        death_signal: int,
        grace: float,
        now: float,
        give_up_after: float = GIVE_UP_SECONDS,
        prelude: Prelude | None = None,
    ) -> None:
        self._find = find
        self._epoll = epoll
        self._signal = death_signal
        self._awaited: dict[int, tuple[int, int]] = {}  # pidfd: id and start time
        self._seen: set[tuple[int, int]] = set()
        self._is_due = True
        self._kill_at = now + (0.0 if death_signal == signal.SIGKILL else grace)
        self._give_up_after = give_up_after
        self._prelude = prelude
        self._ladder: Escalation | None = None
        self.survivors: list[Process] = []
        """What could not be killed, once :attr:`is_over`."""
        if prelude is None or prelude.until <= now:
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
            return None if self._prelude is None else self._prelude.until
        return self._ladder.next_wakeup

    @property
    def seen(self) -> set[int]:
        """The ids of all processes that were asked to end."""
        return {pid for pid, _ in self._seen}

    def hurry(self, death_signal: int, grace: float, now: float) -> None:
        """Ask again, and let the kill come earlier where ``grace`` says so, never later. A prelude ends."""
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
        elif self._prelude is None or not self._prelude.note(fd):
            return False
        self._is_due = True
        return True

    def advance(self, now: float) -> None:
        """Perform the due steps."""
        if self.is_over:
            return
        self._is_due = False
        if self._ladder is None and self._prelude is not None and now < self._prelude.until:
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
        if self._prelude is not None:
            self._prelude.close()
        for fd in list(self._awaited):
            self._forget(fd)

    def _begin(self, now: float) -> Escalation:
        """Begin the ladder."""
        if self._prelude is not None:
            self._prelude.close()
            self._prelude = None
        self._ladder = escalation.begin(now, self._kill_at - now, self._give_up_after)
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


def end(
    find: Callable[[], list[Process]],
    death_signal: int = signal.SIGTERM,
    *,
    grace: float,
    give_up_after: float = GIVE_UP_SECONDS,
) -> list[Process]:
    """End a group, and wait until it is gone or given up. Returns what could not be killed.

    Args:
        find: Returns the living processes of the group.
        death_signal: How to ask.
        grace: Seconds from now to the kill; none for SIGKILL.
        give_up_after: Seconds from the kill to the end of all patience.
    """
    with select.epoll() as epoll:
        ending = Ending(
            find,
            epoll,
            death_signal=death_signal,
            grace=grace,
            now=time.monotonic(),
            give_up_after=give_up_after,
        )
        try:
            while (due := ending.next_wakeup) is not None:
                for fd, _ in epoll.poll(max(0.0, due - time.monotonic())):
                    ending.note(fd)
                ending.advance(time.monotonic())
        finally:
            ending.close()
    return ending.survivors
