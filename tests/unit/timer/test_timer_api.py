"""The timer contract: requests and their other names, `expires`, and the hooks of a server of one's own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from elastic.timer import RequestQueue, TimerClient, TimerRequest, TimerServer, configure, expires


class Diary(TimerClient):
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.open: dict[str, float] = {}
        self.seen: list[str] = []

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self.open[scope_id] = expiration_time
        self.seen.append(scope_id)

    def release(self, scope_id: str) -> None:
        del self.open[scope_id]


@pytest.fixture
def diary() -> Iterator[Diary]:
    diary = Diary()
    configure(diary)
    yield diary
    configure(None)


def test_a_request_has_three_parts_and_other_names_for_them() -> None:
    request = TimerRequest(7, "load", 12.5)
    assert (request.worker_id, request.scope_id, request.expiration_time) == (7, "load", 12.5)
    assert request == TimerRequest(worker_id=7, scope="load", expire_time=12.5)
    assert request.scope == "load"
    assert not request.is_release
    assert TimerRequest(7, "load", -1).is_release
    assert not TimerRequest(7, "load", 0.0).is_release
    assert request != TimerRequest(8, "load", 12.5)


def test_a_moment_of_the_wall_clock_becomes_one_of_the_monotonic_clock() -> None:
    at = datetime.now(timezone.utc) + timedelta(seconds=1000)
    request = TimerRequest(7, scope="load", expire_time=at)
    assert 900 < request.expiration_time - time.monotonic() < 1100
    assert abs(request.expire_time - at) < timedelta(seconds=100)
    assert not TimerRequest(7, "load", datetime(1971, 1, 1, tzinfo=timezone.utc)).is_release, "it is overdue"


def test_a_request_with_a_part_missing_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a worker_id, a scope_id and an expiration_time"):
        TimerRequest(7, "load")


def test_a_client_has_other_names_too(diary: Diary) -> None:
    diary.acquire_scope("a", datetime.now(timezone.utc) + timedelta(seconds=100))
    diary.start_timer(TimerRequest("anybody", "b", 5.0))
    assert diary.open.keys() == {"a", "b"}
    diary.cancel_scope("a")
    diary.start_timer(TimerRequest("anybody", "b", -1.0))
    assert diary.open == {}


def test_a_block_in_time_has_its_deadline_only_while_it_runs(diary: Diary) -> None:
    before = time.monotonic()
    with expires(after=60, scope="load"):
        assert before + 60 <= diary.open["load"] <= time.monotonic() + 60
    assert diary.open == {}
    with expires(timedelta(minutes=1)):
        assert list(diary.open) == [diary.seen[-1]]
    assert diary.seen[-1].startswith("test_timer_api.py#")


def test_a_block_that_ends_late_raises(diary: Diary) -> None:
    late = pytest.raises(TimeoutError, match=r"'load' took \d+\.\d+ s; its deadline was 0\.01 s")
    with late, expires(0.01, "load"):
        time.sleep(0.02)
    assert diary.open == {}


def test_an_exception_of_the_block_goes_on_as_it_is(diary: Diary) -> None:
    def fail_late() -> None:
        with expires(0.01, "load"):
            time.sleep(0.02)
            raise KeyError

    with pytest.raises(KeyError):
        fail_late()
    assert diary.open == {}


def test_a_client_of_its_own_comes_first(diary: Diary) -> None:
    mine = Diary()
    with expires(60, "load", client=mine):
        assert diary.open == {}
        assert mine.open.keys() == {"load"}


def test_without_a_client_it_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"call elastic\.timer\.configure"):
        expires(60)


@pytest.mark.parametrize("after", [0, -1.0, float("nan"), float("inf"), timedelta(0)])
def test_a_time_that_is_none_is_refused(after: float | timedelta, diary: Diary) -> None:
    with pytest.raises(ValueError, match="it must be a positive time"):
        expires(after)


class PlainQueue(RequestQueue):
    """As a user writes one: with the two documented methods."""

    def __init__(self) -> None:
        self.requests: queue.Queue[TimerRequest] = queue.Queue()
        self.waits: list[float] = []

    def size(self) -> int:
        return self.requests.qsize()

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        self.waits.append(timeout)
        try:
            found = [self.requests.get(timeout=max(timeout, 0.001))]
        except queue.Empty:
            return []
        while len(found) < size and not self.requests.empty():
            found.append(self.requests.get())
        return found


class PlainServer(TimerServer):
    """As a user writes one: with the four documented hooks. Its workers are names."""

    def __init__(self, requests: PlainQueue, max_interval: float, *, unwilling: int = 0) -> None:
        super().__init__(requests, max_interval)
        self.table: dict[Any, list[TimerRequest]] = {}
        self.reaped: list[str] = []
        self.unwilling = unwilling
        self.news = threading.Event()

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        for request in timer_requests:
            if request.is_release:
                self.table.pop(request.worker_id, None)
            else:
                self.table[request.worker_id] = [request]

    def clear_timers(self, worker_ids: set[Any]) -> None:
        for worker in worker_ids:
            del self.table[worker]
        self.news.set()

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        return {w: r for w, r in self.table.items() if r[0].expiration_time <= deadline}

    def _reap_worker(self, worker_id: Any) -> bool:
        self.reaped.append(worker_id)
        if len(self.reaped) <= self.unwilling:
            raise OSError("not now")
        return True


def test_a_server_of_ones_own_reaps_who_is_overdue_and_forgets_it() -> None:
    requests = PlainQueue()
    server = PlainServer(requests, 0.05)
    server.start()
    assert server.is_running
    try:
        requests.requests.put(TimerRequest("ann", "a", time.monotonic() + 1000))
        requests.requests.put(TimerRequest("bob", "b", time.monotonic() + 1000))
        requests.requests.put(TimerRequest("bob", "b", -1))
        requests.requests.put(TimerRequest("cat", "c", 0.0))
        assert server.news.wait(20)
        assert server.reaped == ["cat"]
        with pytest.raises(RuntimeError, match="running already"):
            server.start()
    finally:
        server.stop()
    assert not server.is_running
    server.stop()
    assert server.table.keys() == {"ann"}
    server.start()
    assert server.is_running
    server.stop()


def test_a_worker_that_cannot_be_ended_is_tried_again_at_its_leisure() -> None:
    requests = PlainQueue()
    server = PlainServer(requests, 0.02, unwilling=3)
    requests.requests.put(TimerRequest("cat", "c", 0.0))
    server.start()
    try:
        assert server.news.wait(20)
    finally:
        server.stop()
    assert server.reaped == ["cat"] * 4
    assert requests.waits[1:4] == [0.02] * 3, "it must not spin"


def test_an_interval_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="max_interval is 0: it must be a positive"):
        PlainServer(PlainQueue(), 0)
