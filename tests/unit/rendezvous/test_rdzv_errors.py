"""The error tree, the exit codes that it means, and what the package exports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elastic import rendezvous
from elastic.rendezvous import Outcome, RendezvousClosedError, RendezvousError, Terminal

ERRORS = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousExhaustedError",
    "RendezvousGracefulExitError",
    "RendezvousStateError",
    "RendezvousTimeoutError",
]
DOCUMENTED = {
    "DynamicRendezvousHandler",
    "P10dRendezvousBackend",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousSettings",
    "RendezvousStoreInfo",
    "RendezvousTimeout",
    "RendezvousError",
    "StaticTCPRendezvous",
    "TpRendezvousBackend",
    "create_handler",
    "get_registry",
    *ERRORS,
}
OURS = {
    "Failure",
    "Member",
    "Outcome",
    "RendezvousBackend",
    "RendezvousStatus",
    "Standing",
    "Terminal",
    "Token",
}


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_a_rendezvous_error_and_no_other(name: str) -> None:
    kind = getattr(rendezvous, name)
    assert kind.__bases__ == (RendezvousError,)
    assert str(kind("one sentence")) == "one sentence"


def test_the_root_is_an_exception_of_its_own() -> None:
    assert RendezvousError.__bases__ == (Exception,)


def terminal(outcome: Outcome, exit_code: int) -> Terminal:
    return Terminal(outcome=outcome, reason="", exit_code=exit_code, incarnation=1, round=1, node_id="a")


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (None, 1),
        (terminal(Outcome.SUCCEEDED, 0), 0),
        (terminal(Outcome.CLOSED, 0), 1),
        (terminal(Outcome.FAILED, 0), 1),
        (terminal(Outcome.FAILED, 42), 42),
    ],
)
def test_the_exit_code_of_a_closed_rendezvous_is_the_jobs(ending: Terminal | None, code: int) -> None:
    error = RendezvousClosedError("ended", terminal=ending)
    assert error.exit_code == code
    assert error.terminal is ending


def test_the_package_exports_what_is_documented_and_what_that_needs() -> None:
    assert set(rendezvous.__all__) == DOCUMENTED | OURS
    assert len(rendezvous.__all__) == len(set(rendezvous.__all__))
    assert all(hasattr(rendezvous, name) for name in rendezvous.__all__)


def test_importing_the_package_loads_no_client() -> None:
    program = "import sys, elastic.rendezvous; print([m for m in ('h2', 'tenacity') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
