"""Faults on purpose, at named steps of the protocol: for drills, and for the project's own tests.

``ELASTIC_FAULT`` holds ``ACTION@STEP``, or several with commas. STEP is that of a transaction:

``joining active stopping done waiting spare leaving``
    this node writes its own record, with what it wants then
``open form announce evict restore close``
    this node leads, and moves the round forward or ends the job
``campaign incarnate``
    it tries to lead; it begins a new run after one that has ended

or ``after-STEP``, when the transaction has been carried out and nothing else has. ACTION is

``die``
    the process is killed, as by the loss of its machine
``pause``
    the process is stopped (SIGSTOP), until somebody continues it
``drop``
    the transaction is lost on its way; with ``after-``, its answer is: it was carried out, and nobody knows

Each happens once in the life of the process.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

from .api import BackendUnavailable, CommitResult

log = logging.getLogger("elastic.rendezvous")

VARIABLE = "ELASTIC_FAULT"
ACTIONS = ("die", "pause", "drop")
STEPS = (
    *("joining", "active", "stopping", "done", "waiting", "spare", "leaving"),
    *("open", "form", "announce", "evict", "restore", "close", "campaign", "incarnate"),
)


class FaultPoints:
    """The faults that a text asks for. ValueError for what is none."""

    def __init__(self, text: str = "") -> None:
        self._faults: set[tuple[str, str]] = set()
        for part in filter(None, (p.strip() for p in text.split(","))):
            action, _, step = part.partition("@")
            if action not in ACTIONS or step.removeprefix("after-") not in STEPS:
                raise ValueError(
                    f"{VARIABLE}={part!r} is no fault: write ACTION@STEP with one of {', '.join(ACTIONS)} "
                    f"and one of {', '.join(STEPS)}, or after- before the step"
                )
            self._faults.add((action, step))

    def around(self, step: str, call: Callable[[], CommitResult]) -> CommitResult:
        """Make the call, with what is due before and after it."""
        self._stumble(step)
        if self._due("drop", step):
            raise BackendUnavailable(f"{step} was lost on its way, on purpose", maybe=True)
        result = call()
        self._stumble(f"after-{step}")
        if self._due("drop", f"after-{step}"):
            raise BackendUnavailable(f"the answer to {step} was lost, on purpose", maybe=True)
        return result

    def _stumble(self, step: str) -> None:
        for action, number in (("die", signal.SIGKILL), ("pause", signal.SIGSTOP)):
            if self._due(action, step):
                os.kill(os.getpid(), number)

    def _due(self, action: str, step: str) -> bool:
        if (action, step) not in self._faults:
            return False
        self._faults.discard((action, step))
        log.warning("%s=%s@%s", VARIABLE, action, step)
        return True
