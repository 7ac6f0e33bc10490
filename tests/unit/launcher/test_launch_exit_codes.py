"""The table of exit codes."""

import signal

import pytest

from elastic.launcher.errors import LaunchError, UsageError
from elastic.launcher.exit_codes import ExitCode, exit_code_of, signal_exit_code
from elastic.rendezvous.errors import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousExhaustedError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousTimeoutError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (LaunchError("x", 17), 17),
        (RendezvousConnectionError("x"), 69),
        (RendezvousTimeoutError("x"), 75),
        (RendezvousExhaustedError("x"), 75),
        (RendezvousStateError("x"), 76),
        (RendezvousGracefulExitError("x"), 0),
        (RendezvousError("x"), 70),
        (KeyError("x"), 70),
    ],
)
def test_the_code_of_an_error(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def test_a_signal_is_told_as_shells_tell_it() -> None:
    assert signal_exit_code(signal.SIGTERM) == 143


def test_the_codes_of_the_launcher_differ() -> None:
    assert len({code.value for code in ExitCode}) == len(ExitCode)
