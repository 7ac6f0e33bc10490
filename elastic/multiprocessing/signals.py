"""Signals as values: the exception that stands for one, and their names.

It installs no handler: who owns the main thread decides what a signal means.
"""

import signal


class SignalException(Exception):
    """A signal asked this process to end. To be raised by a signal handler.

    Args:
        msg: What happened, in words.
        sigval: Which signal.
    """

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


def signal_name(number: int) -> str:
    """Return ``SIGSEGV`` for 11; real-time signals are named from the first one, as ``SIGRTMIN+3``.

    A number that is no signal on this system gets a name too: ``signal 99``.
    """
    first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
    if first < number < last:
        return f"SIGRTMIN+{number - first}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
