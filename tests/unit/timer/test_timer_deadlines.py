"""The table of open deadlines: against a slow, obvious one, and fast with very many."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from elastic.timer import TimerRequest
from elastic.timer.deadlines import Deadlines

REQUESTS = st.builds(
    TimerRequest,
    st.integers(0, 3),
    st.sampled_from(["a", "b", "c"]),
    st.one_of(st.just(-1.0), st.integers(0, 20).map(float)),
)
COMMANDS = st.lists(st.one_of(REQUESTS, st.sets(st.integers(0, 3), max_size=2)), max_size=40)


@given(COMMANDS, st.integers(0, 20))
def test_it_is_as_a_table_looked_through_from_end_to_end(
    commands: list[TimerRequest | set[int]], now: int
) -> None:
    deadlines: Deadlines[TimerRequest] = Deadlines()
    plain: dict[tuple[int, str], TimerRequest] = {}
    for command in commands:
        if isinstance(command, TimerRequest):
            deadlines.register([command])
            plain.pop((command.worker_id, command.scope_id), None)
            if not command.is_release:
                plain[command.worker_id, command.scope_id] = command
        else:
            deadlines.clear(command)
            plain = {key: request for key, request in plain.items() if key[0] not in command}
        assert len(deadlines) == len(plain)
        assert deadlines.next() == min((r.expiration_time for r in plain.values()), default=None)
        assert deadlines.workers() == {worker for worker, _ in plain}

    passed = [request for request in plain.values() if request.expiration_time <= now]
    expired = deadlines.expired(now)
    assert sorted(map(repr, passed)) == sorted(repr(r) for requests in expired.values() for r in requests)
    for worker, requests in expired.items():
        times = [request.expiration_time for request in requests]
        assert times == sorted(times)
        assert {request.worker_id for request in requests} == {worker}


def test_of_many_deadlines_the_first_is_found_without_looking_at_all() -> None:
    deadlines: Deadlines[TimerRequest] = Deadlines()
    began = time.monotonic()
    deadlines.register(TimerRequest(w, f"s{i}", 1000.0 + i) for w in range(64) for i in range(1000))
    for i in range(1000):  # each of them ends and begins again, and somebody asks for the next each time
        deadlines.register([TimerRequest(7, f"s{i}", -1.0)])
        deadlines.register([TimerRequest(7, f"s{i}", 1000.0)])
        assert deadlines.expired(999.0) == {}
        assert deadlines.next() == 1000.0
    assert len(deadlines) == 64_000
    assert time.monotonic() - began < 20, "it took the square of the time"


def test_a_deadline_that_is_moved_forever_takes_no_more_room() -> None:
    deadlines: Deadlines[TimerRequest] = Deadlines()
    for i in range(10_000):
        deadlines.register([TimerRequest(0, "step", float(i))])
    assert len(deadlines._order) < 200
    assert deadlines.next() == 9_999.0
