"""When workers are started again after a failure: pauses, and the end of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.agent.server.restarts import RestartPolicy, Streak
from elastic.multiprocessing import ProcessFailure

POLICY = RestartPolicy(backoff=1, longest=30, same_failures=3, progress_after=60)


def failure(exitcode: int = 1, *stderr: str) -> ProcessFailure:
    return ProcessFailure(local_rank=0, pid=7, exitcode=exitcode, stderr_tail=stderr)


def streak_of(*failures: tuple[ProcessFailure, float], policy: RestartPolicy = POLICY) -> Streak:
    streak = Streak()
    for each, ran in failures:
        streak = streak.after(each, ran=ran, policy=policy)
    return streak


def test_the_first_restart_is_immediate_and_each_further_one_later_up_to_a_limit() -> None:
    pauses = [streak_of(*[(failure(), 0.1)] * n).pause(POLICY, jitter=0) for n in range(1, 9)]
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30]


def test_workers_that_ran_for_long_begin_a_new_streak() -> None:
    streak = streak_of(*[(failure(), 0.1)] * 5, (failure(), 60.0))
    assert streak.pause(POLICY, jitter=0) == 0
    assert not streak.is_hopeless(POLICY)
    assert streak.after(failure(), ran=1, policy=POLICY).pause(POLICY, jitter=0) == 1


def test_the_same_failure_again_and_again_is_hopeless() -> None:
    same = failure(1, "Traceback (most recent call last):", '  File "x"', "SyntaxError: invalid syntax")
    assert not streak_of((same, 1), (same, 1)).is_hopeless(POLICY)
    assert streak_of((same, 1), (same, 1), (same, 1)).is_hopeless(POLICY)


@pytest.mark.parametrize(
    "other",
    [failure(2), failure(-9), failure(1, "OSError: no route to host"), failure(1, "another last line")],
)
def test_another_failure_is_not_the_same(other: ProcessFailure) -> None:
    same = failure(1, "ValueError: x")
    streak = streak_of((same, 1), (same, 1), (other, 1), (same, 1))
    assert not streak.is_hopeless(POLICY)
    assert streak.failures == 4


def test_both_can_be_turned_off() -> None:
    policy = RestartPolicy(backoff=0, same_failures=0)
    streak = streak_of(*[(failure(), 0.1)] * 100, policy=policy)
    assert streak.pause(policy, jitter=0) == 0
    assert not streak.is_hopeless(policy)


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_jitter_takes_at_most_half_away(count: int, jitter: float) -> None:
    streak = Streak(count)
    whole = streak.pause(POLICY, jitter=0)
    assert whole / 2 <= streak.pause(POLICY, jitter=jitter) <= whole <= POLICY.longest


@pytest.mark.parametrize("name", ["backoff", "longest", "same_failures", "progress_after"])
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RestartPolicy(**{name: -1})
