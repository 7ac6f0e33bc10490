"""The kill ladder, driven by values alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.utils.escalation import (
    CONFIRM_SECONDS,
    GIVE_UP_SECONDS,
    RESCAN_SECONDS,
    Escalation,
    Phase,
    Step,
    advance,
    begin,
    shorten,
)

PROFILE = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def confirm(ladder: Escalation, now: float) -> Escalation:
    """Nobody is found now, nor a little later."""
    ladder, step = advance(ladder, now, living=0)
    assert (ladder.is_over, step) == (False, Step.NOTHING)
    early, _ = advance(ladder, now + CONFIRM_SECONDS / 2, living=0)
    assert early == ladder
    return advance(ladder, now + CONFIRM_SECONDS, living=0)[0]


def test_whoever_ends_in_time_is_not_killed() -> None:
    ladder = begin(100.0, 30.0)
    ladder, step = advance(ladder, 129.9, living=1)
    assert (ladder.phase, step) == (Phase.ASKED, Step.NOTHING)
    ladder = confirm(ladder, 129.95)
    assert ladder.phase is Phase.FINISHED
    assert ladder.next_wakeup is None


def test_the_kill_is_repeated_until_nothing_lives() -> None:
    ladder = begin(100.0, 30.0)
    assert ladder.next_wakeup == 130.0
    ladder, step = advance(ladder, 130.0, living=2)
    assert (ladder.phase, step) == (Phase.KILLING, Step.KILL)
    assert ladder.next_wakeup == 130.0 + RESCAN_SECONDS
    ladder, step = advance(ladder, 130.2, living=1)
    assert step is Step.KILL
    assert confirm(ladder, 130.3).phase is Phase.FINISHED


def test_whoever_was_overlooked_once_is_found_the_second_time() -> None:
    ladder, _ = advance(begin(0.0, 30.0), 1.0, living=0)
    assert ladder.next_wakeup == 1.0 + CONFIRM_SECONDS
    ladder, step = advance(ladder, 1.0 + CONFIRM_SECONDS, living=1)
    assert (ladder.phase, step, ladder.next_wakeup) == (Phase.ASKED, Step.NOTHING, 30.0)
    assert confirm(ladder, 2.0).phase is Phase.FINISHED


def test_what_can_not_be_killed_is_given_up() -> None:
    ladder, _ = advance(begin(0.0, 0.0), 0.0, living=1)
    assert ladder.give_up_at == GIVE_UP_SECONDS
    ladder, step = advance(ladder, GIVE_UP_SECONDS, living=1)
    assert (ladder.phase, step, ladder.is_over) == (Phase.ABANDONED, Step.NOTHING, True)


@pytest.mark.parametrize(("grace", "expected"), [(1.0, 11.0), (60.0, 30.0), (-5.0, 10.0)])
def test_a_second_request_only_shortens(grace: float, expected: float) -> None:
    assert shorten(begin(0.0, 30.0), 10.0, grace).kill_at == expected


def test_a_second_request_does_not_delay_a_kill_under_way() -> None:
    ladder, _ = advance(begin(0.0, 0.0), 0.0, living=1)
    assert shorten(ladder, 1.0, 30.0) == ladder


@PROFILE
@given(
    grace=st.floats(0, 60),
    steps=st.lists(st.tuples(st.floats(0, 5), st.booleans(), st.floats(0, 60)), max_size=40),
)
def test_it_always_ends_and_never_kills_early(grace: float, steps: list[tuple[float, bool, float]]) -> None:
    now, kill_by = 0.0, grace
    ladder = begin(now, grace)
    for pause, hurries, new_grace in steps:
        now += pause
        if hurries:
            ladder = shorten(ladder, now, new_grace)
            if ladder.phase is Phase.ASKED:
                kill_by = min(kill_by, now + new_grace)
        ladder, step = advance(ladder, now, living=1)
        assert (step is Step.KILL) <= (now >= kill_by)
    # Followed to the end by its own wake-ups, it is over in bounded time and with few steps.
    for _ in range(200):
        wakeup = ladder.next_wakeup
        if wakeup is None:
            break
        now = max(now, wakeup)
        ladder, _ = advance(ladder, now, living=1)
    assert ladder.phase is Phase.ABANDONED
