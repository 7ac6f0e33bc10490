"""Faults on purpose: which are understood, and when each happens. (Whole jobs: tests/integration/faults.)"""

from __future__ import annotations

import pytest

from elastic.rendezvous.backends.api import BackendUnavailable, CommitResult
from elastic.rendezvous.backends.faults import ACTIONS, STEPS, FaultPoints

RESULT = CommitResult(succeeded=True)


class Call:
    """Counts how often it was made."""

    made = 0

    def __call__(self) -> CommitResult:
        self.made += 1
        return RESULT


def test_without_faults_a_call_is_just_made() -> None:
    call = Call()
    assert FaultPoints().around("form", call) is RESULT
    assert FaultPoints(" , ").around("form", call) is RESULT
    assert call.made == 2


@pytest.mark.parametrize(("fault", "made"), [("drop@form", 0), ("drop@after-form", 1)])
def test_a_transaction_is_lost_once_on_its_way_or_on_its_way_back(fault: str, made: int) -> None:
    call, faults = Call(), FaultPoints(fault)
    assert faults.around("open", call) is RESULT, "another step"
    with pytest.raises(BackendUnavailable, match=r"form.*on purpose") as caught:
        faults.around("form", call)
    assert caught.value.maybe, "nobody knows whether it was carried out"
    assert call.made == 1 + made
    assert faults.around("form", call) is RESULT, "only once"


def test_several_faults_at_once() -> None:
    call, faults = Call(), FaultPoints("drop@form, drop@after-form,drop@close")
    for step in ("form", "form", "close"):
        with pytest.raises(BackendUnavailable):
            faults.around(step, call)
    assert call.made == 1


@pytest.mark.parametrize(
    "text", ["die", "die@", "@form", "explode@form", "die@lunch", "die@before-form", "die@form@form"]
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ELASTIC_FAULT") as caught:
        FaultPoints(text)
    assert repr(text) in str(caught.value)
    assert all(word in str(caught.value) for word in (*ACTIONS, *STEPS))
