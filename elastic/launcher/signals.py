"""Signals before and after the agent's loop: start-up and clean-up end in order, with the right code.

While the agent runs, it handles signals itself. Around that (a local etcd that starts, clean-up) a
signal is raised as :class:`~elastic.multiprocessing.SignalException`, so that what was started is ended
by the ``with`` blocks that hold it.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from elastic.multiprocessing.signals import SignalException, signal_name

__all__ = ["raised_as_exceptions"]


@contextmanager
def raised_as_exceptions(signals: Sequence[signal.Signals]) -> Iterator[Callable[[], None]]:
    """Raise the first of these signals as ``SignalException`` inside the block.

    The block is then on its way out, and further ones are ignored, so that an impatient second Ctrl-C
    does not cut the clean-up short. It yields a function to be called when clean-up begins for another
    reason, with the same effect. The handlers of before come back after the block. Off the main thread,
    where Python lets nobody install a handler, nothing is done.
    """
    leaving = False

    def leave() -> None:
        nonlocal leaving
        leaving = True

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature of a handler)
        if not leaving:
            leave()
            raise SignalException(f"told to end by {signal_name(number)}", signal.Signals(number))

    if threading.current_thread() is not threading.main_thread():
        yield leave
        return
    # A signal that was ignored when this process began (nohup) stays ignored.
    wanted = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield leave
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
