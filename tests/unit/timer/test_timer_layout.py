"""What is written on a slate is read again, and what is half written is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.timer.layout import (
    KEPT,
    MOST_SCOPE_BYTES,
    SERIES_BYTES,
    STATE_BYTES,
    State,
    pack_series,
    pack_state,
    unpack_series,
    unpack_state,
)
from elastic.timer.series import Series

TIMES = st.floats(0, 1e9)
STATES = st.builds(
    State, TIMES, st.none() | TIMES, st.none() | TIMES, TIMES, st.text(max_size=60), st.integers(-1, 64)
)


@given(STATES)
def test_a_state_is_read_as_it_was_written(state: State) -> None:
    data = pack_state(state)
    assert len(data) == STATE_BYTES
    assert unpack_state(data) == state


@given(STATES, STATES, st.integers(1, STATE_BYTES - 1))
def test_half_of_one_and_half_of_another_is_neither(one: State, other: State, cut: int) -> None:
    torn = pack_state(one)[:cut] + pack_state(other)[cut:]
    assert unpack_state(torn) in (None, one, other)


@given(st.lists(TIMES, max_size=2 * KEPT), TIMES, st.text(max_size=8))
def test_a_series_keeps_the_latest_times(durations: list[float], last_at: float, name: str) -> None:
    name = name.replace("\0", "")
    data = pack_series(name, Series(len(durations), last_at, tuple(durations)))
    assert len(data) == SERIES_BYTES
    assert unpack_series(data) == (name, Series(len(durations), last_at, tuple(durations[-KEPT:])))


def test_what_is_too_long_is_cut_between_characters() -> None:
    state = unpack_state(pack_state(State(1.0, None, 2.0, 3.0, "€" * 1000)))
    assert state is not None
    assert set(state.scope) == {"€"}
    assert len(state.scope.encode()) <= MOST_SCOPE_BYTES


@pytest.mark.parametrize("data", [b"", b"\0" * STATE_BYTES, b"\xff" * STATE_BYTES, b"x" * 100])
def test_nonsense_is_no_state(data: bytes) -> None:
    assert unpack_state(data) is None
    assert unpack_series(data.ljust(SERIES_BYTES, b"\0")) is None
