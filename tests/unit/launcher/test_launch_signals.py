"""Signals around the agent's loop become exceptions, and the handlers of before come back."""

import contextlib
import os
import signal
import subprocess
import threading

import pytest

from elastic.launcher.signals import collecting_children, raised_as_exceptions
from elastic.multiprocessing.signals import SignalException


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_raised_inside_the_block(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SignalException) as caught, raised_as_exceptions([number]):
        signal.raise_signal(number)
    assert caught.value.sigval is number
    assert signal.getsignal(number) is before


def test_only_the_first_signal_is_raised_so_that_clean_up_is_not_cut_short() -> None:
    done = []

    def clean_up() -> None:
        signal.raise_signal(signal.SIGHUP)
        done.append("cleaned up")

    def work() -> None:
        with raised_as_exceptions([signal.SIGTERM, signal.SIGHUP]), contextlib.ExitStack() as stack:
            stack.callback(clean_up)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SignalException) as caught:
        work()
    assert caught.value.sigval is signal.SIGTERM
    assert done == ["cleaned up"]


def test_signals_are_ignored_once_the_block_has_said_that_it_leaves() -> None:
    with raised_as_exceptions([signal.SIGTERM]) as start_up:
        start_up.leave()
        signal.raise_signal(signal.SIGTERM)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raised_as_exceptions([signal.SIGHUP]):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_off_the_main_thread_nothing_is_installed() -> None:
    seen = []

    def enter() -> None:
        with raised_as_exceptions([signal.SIGTERM]):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


@pytest.mark.parametrize("error", [None, RuntimeError("something broke")])
def test_a_signal_that_was_kept_back_is_raised_all_the_same(error: Exception | None) -> None:
    """Callbacks from C, destructors and the like only print what is raised in them."""

    def work() -> None:
        with raised_as_exceptions([signal.SIGTERM]) as start_up:
            with contextlib.suppress(BaseException):
                signal.raise_signal(signal.SIGTERM)
            if error is not None:
                raise error
            start_up.check()

    with pytest.raises(SignalException) as caught:
        work()
    assert caught.value.sigval is signal.SIGTERM


def test_code_that_catches_its_errors_does_not_catch_a_signal() -> None:
    def work() -> None:
        with raised_as_exceptions([signal.SIGTERM]):
            try:
                signal.raise_signal(signal.SIGTERM)
            except Exception:
                pytest.fail("the signal was taken for an error")

    with pytest.raises(SignalException):
        work()


def test_news_are_overheard() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with raised_as_exceptions([signal.SIGTERM], ignored=[signal.SIGUSR1]):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is before


def test_children_that_nobody_wanted_to_hear_of_are_collected_inside_the_block() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with collecting_children():
            assert subprocess.run(["sh", "-c", "exit 3"], check=False).returncode == 3
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)
    with collecting_children():
        assert signal.getsignal(signal.SIGCHLD) is before
