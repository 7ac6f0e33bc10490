"""Signals before and after the agent's loop: start-up and clean-up end in order, with the right code.

While the agent runs, it handles signals itself. Around that (a local etcd that starts, clean-up) a
signal is raised as :class:`~elastic.multiprocessing.SignalException`, so that what was started is ended
by the ``with`` blocks that hold it.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from elastic.multiprocessing.signals import SignalException, signal_name

__all__ = ["StartUp", "collecting_children", "raised_as_exceptions"]


class StartUp:
    """What a block under :func:`raised_as_exceptions` and its signal handler know of each other."""

    def __init__(self) -> None:
        self._told: signal.Signals | None = None
        self._is_over = False

    def leave(self) -> None:
        """Ignore signals from now on: clean-up begins, and not because of one."""
        self._is_over = True

    def check(self) -> None:
        """Raise the signal that came, if one did: the code that it interrupted may have kept it to itself."""
        if self._told is not None:
            raise SignalException(f"told to end by {signal_name(self._told)}", self._told)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a handler's signature)
        if not self._is_over:
            self._is_over = True
            self._told = signal.Signals(number)
            raise _Interrupted


class _Interrupted(BaseException):
    """What a handler raises. No Exception, since the code it lands in takes those for faults of its own."""


def _overhear(number: int, frame: FrameType | None) -> None:
    """Does nothing. Not SIG_IGN, which every process that is started from here would inherit."""


@contextmanager
def collecting_children() -> Iterator[None]:
    """Have the system keep the exit codes of this process's children for it, inside the block.

    A process that was started with SIGCHLD ignored, as some supervisors do, would lose those of its workers;
    and they would inherit it. Off the main thread nothing is done.
    """
    is_ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if not is_ignored or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@contextmanager
def raised_as_exceptions(
    signals: Sequence[signal.Signals], *, ignored: Sequence[signal.Signals] = ()
) -> Iterator[StartUp]:
    """Raise the first of these signals as ``SignalException`` from the block.

    The block is then on its way out, and further ones are ignored, so that an impatient second Ctrl-C
    does not cut the clean-up short. Those in ``ignored`` do nothing inside the block: they are news for
    workers, of which there are none yet, and must not end this process. The handlers of before come back
    after the block. Off the main thread, where Python lets nobody install a handler, nothing is done.
    """
    start_up = StartUp()
    if threading.current_thread() is not threading.main_thread():
        yield start_up
        return
    handlers = {**dict.fromkeys(ignored, _overhear), **dict.fromkeys(signals, start_up._handle)}
    # A signal that was ignored when this process began (nohup) stays ignored.
    wanted = {n: handler for n, handler in handlers.items() if signal.getsignal(n) is not signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield start_up
    except _Interrupted:
        start_up.check()
    except Exception:
        start_up.check()  # an error that comes of an interruption is none of its own
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
