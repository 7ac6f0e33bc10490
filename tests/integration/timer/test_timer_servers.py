"""Timer servers and clients in real processes: over a queue, over files, and torch's client with ours."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.queues import Queue
from pathlib import Path

import pytest
from support.reporting import PATIENCE, Worker

from elastic.timer import (
    FileTimerRequest,
    FileTimerServer,
    LocalTimerClient,
    LocalTimerServer,
    TimerRequest,
    configure,
    expires,
)

SPAWN = multiprocessing.get_context("spawn")

CLIENT = """
import os, sys, time
from elastic.timer import FileTimerClient, configure, expires
configure(FileTimerClient({path!r}))
"""
LATE = "with expires(0.3, 'slow'): time.sleep(60)"
IN_TIME = """
for _ in range(20):
    with expires(4, 'quick'): time.sleep(0.01)
time.sleep(4.2)  # past every deadline that it had
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "timers")


def client(path: str, lines: str) -> Worker:
    return Worker(CLIENT.format(path=path) + lines)


def stuck_or_not(requests: Queue[TimerRequest], *, is_stuck: bool) -> None:
    configure(LocalTimerClient(requests))
    for _ in range(20):
        with expires(4):
            time.sleep(0.01)
    if is_stuck:
        with expires(0.3):
            time.sleep(60)
    time.sleep(4.5)  # past every deadline that it had, and what is waited for a release


@pytest.mark.parametrize("is_stuck", [True, False])
def test_a_queue_ends_who_is_stuck_and_nobody_who_was_in_time(is_stuck: bool) -> None:
    requests = SPAWN.Queue()
    server = LocalTimerServer(requests)
    server.start()
    process = SPAWN.Process(target=stuck_or_not, args=(requests,), kwargs={"is_stuck": is_stuck})
    process.start()
    try:
        process.join(PATIENCE)
        assert process.exitcode == (-signal.SIGKILL if is_stuck else 0)
    finally:
        process.kill()
        process.join()
        process.close()
        server.stop()
        requests.close()
        requests.join_thread()


def test_a_queue_server_waits_a_little_for_a_release_that_is_on_its_way() -> None:
    server = LocalTimerServer(SPAWN.Queue())
    with Worker("input()") as worker:
        server.register_timers([TimerRequest(worker.pid, "x", 100.0)])
        assert server.get_expired_timers(100.1) == {}
        assert (server.next_deadline() or 0) > 100.1
        assert list(server.get_expired_timers(100.3)) == [worker.pid]
        server.register_timers([TimerRequest(worker.pid, "x", -1)])
        assert (server.get_expired_timers(1e9), server.next_deadline()) == ({}, None)


def test_a_queue_server_sleeps_until_it_is_stopped() -> None:
    requests = SPAWN.Queue()
    server = LocalTimerServer(requests, max_interval=1000)
    server.start()
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 20
    requests.close()


def test_a_queue_that_takes_nothing_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    requests = SPAWN.Queue(1)
    timers = LocalTimerClient(requests)
    for _ in range(3):
        with expires(60, client=timers):
            pass
    assert len(caplog.records) == 1
    requests.get(timeout=PATIENCE)
    requests.close()
    requests.join_thread()


def test_a_stranger_and_the_server_itself_are_refused(path: str, caplog: pytest.LogCaptureFixture) -> None:
    for server in (LocalTimerServer(SPAWN.Queue()), FileTimerServer(path)):
        server.register_timers(
            [FileTimerRequest(pid, "x", 0.0, signal.SIGKILL) for pid in (1, os.getpid(), os.getppid())]
        )
        assert server.get_expired_timers(time.monotonic()) == {}
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == 2 * [
        f"process {pid} is refused a timer" for pid in (1, os.getpid(), os.getppid())
    ]


def test_files_end_who_is_stuck_and_tell_of_it(path: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, str]] = []
    server = FileTimerServer(
        path, "run", log_event=lambda name, request: told.append((name, request.scope_id if request else ""))
    )
    server.start()
    with client(path, LATE) as stuck, client(path, IN_TIME) as quick:
        assert stuck.wait() == -signal.SIGKILL
        assert quick.wait() == 0
        pid = stuck.pid
    server.stop()
    assert told == [
        ("watchdog started", ""),
        ("timer expired", "slow"),
        ("kill worker process", "slow"),
        ("watchdog stopped", ""),
    ]
    assert f"worker {pid} is overdue: the deadline for 'slow' has passed" in caplog.text
    assert list(Path(path).parent.iterdir()) == [], "it leaves nothing behind"


def test_the_signal_is_the_clients_own_and_may_be_none(path: str) -> None:
    told = threading.Event()

    def note(name: str, _request: FileTimerRequest | None) -> None:
        if name == "timer expired":
            told.set()

    server = FileTimerServer(path, log_event=note)
    server.start()
    patient = CLIENT.replace("{path!r})", "{path!r}, signal=0)")
    polite = CLIENT.replace("{path!r})", "{path!r}, signal=15)")
    with Worker(patient.format(path=path) + "with expires(0.1): sys.stdin.readline()") as worker:
        assert told.wait(PATIENCE)
        worker.tell()
        assert worker.wait() == 1, "it was late all the same: TimeoutError"
    with Worker(polite.format(path=path) + LATE) as worker:
        assert worker.wait() == -signal.SIGTERM
    server.stop()


def test_a_client_needs_no_server_and_one_that_comes_later_finds_its_deadline(path: str) -> None:
    lines = "print('began', flush=True)\nwith expires(1, 'x'): print('in', flush=True); time.sleep(60)"
    with client(path, lines) as worker:
        assert [worker.says(), worker.says()] == ["began", "in"]
        server = FileTimerServer(path)
        server.start()
        assert worker.wait() == -signal.SIGKILL
        server.stop()


def test_a_dead_server_harms_no_client_and_its_successor_takes_over(path: str) -> None:
    server = f"""
from elastic.timer import FileTimerServer
FileTimerServer({path!r}).start()
print('ready', flush=True)
import time; time.sleep(60)
"""
    lines = """
import logging
from contextlib import suppress
logging.basicConfig(stream=sys.stdout)
for line in sys.stdin:
    for _ in range(100):
        with suppress(TimeoutError), expires(0.05 if line == 'short\\n' else 60, 'x'): pass
    print('done', flush=True)
with expires(60, 'x'): pass
print('last', flush=True)
with expires(0.2, 'last'): time.sleep(60)
"""
    with Worker(server) as first, client(path, lines) as worker:
        assert first.says() == "ready"
        worker.tell("long")
        assert worker.says() == "done"
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        for _ in range(2):
            worker.tell("short")
        assert "nobody reads" in worker.says()
        assert [worker.says(), worker.says()] == ["done", "done"], "one warning is enough"
        successor = FileTimerServer(path)
        successor.start()
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.says() == "last"
        assert worker.wait() == -signal.SIGKILL
        successor.stop()


def test_a_stopped_server_finds_no_old_deadline_of_a_client_that_went_on(path: str) -> None:
    """What is stopped for a while must not end a worker for what is long over."""
    server = FileTimerServer(path)
    server._queue.open()
    lines = """
from contextlib import suppress
for line in sys.stdin:
    with suppress(TimeoutError), expires(0.5): pass
    print('ok', flush=True)
"""
    with client(path, lines) as worker:
        for _ in range(3):
            worker.tell()
            assert worker.says() == "ok"
        time.sleep(0.6)
        server.run_once()
        worker.tell()
        assert worker.says() == "ok"
    server._queue.close()


def test_a_forked_child_has_deadlines_of_its_own(path: str) -> None:
    lines = """
with expires(60, 'parent'):
    child = os.fork()
    if child == 0:
        with expires(0.2, 'child'): time.sleep(60)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    server = FileTimerServer(path)
    server.start()
    with client(path, lines) as worker:
        assert worker.says() == "-9"
        assert worker.wait() == 0
    server.stop()


def test_nested_and_parallel_blocks_of_one_name_each_count(path: str) -> None:
    lines = """
import threading
with expires(60, 'x'):
    with expires(50, 'x'): pass
def enter(): [expires(60, 'y').__enter__() for _ in range(50)]
threads = [threading.Thread(target=enter) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
with expires(0.2, 'x'):
    with expires(60, 'x'): pass
    time.sleep(60)
"""
    server = FileTimerServer(path)
    server.start()
    with client(path, lines) as worker:
        assert worker.wait() == -signal.SIGKILL
    server.stop()


def test_two_servers_do_not_share_a_file(path: str) -> None:
    first, second = FileTimerServer(path), FileTimerServer(path)
    first.start()
    with pytest.raises(OSError, match="another server reads it; name another file"):
        second.start()
    first.stop()
    second.start()
    second.stop()
    Path(path).write_text("mine")
    with pytest.raises(FileExistsError, match="it is no named pipe; name another file"):
        first.start()
    nowhere = f"{path}.d/timers"
    with pytest.raises(FileNotFoundError, match=f"no named pipe can be made: .*{nowhere}"):
        FileTimerServer(nowhere).start()


def test_nonsense_in_the_pipe_is_ignored_with_one_warning(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = FileTimerServer(path)
    server.start()
    with Path(path).open("wb", buffering=0) as pipe:
        pipe.write(b'\xff\xfe\n[]\n{"pid": "x"}\n{"pid":1}\nnull\n' + b"[" * 5000 + b"\n")
        pipe.write(b'{"pid": 1, "scope_id": "x", "expiration_time": NaN, "signal": 9}\n')
        pipe.write(b'{"pid": 1, "scope_id": "x", "expiration_time": 5, "signal": 9}\n')
    with client(path, LATE) as stuck:
        assert stuck.wait() == -signal.SIGKILL
    server.stop()
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [w.rpartition("; ")[2] for w in warnings] == [
        "it is ignored",
        "process 1 is refused a timer: it is no worker of this one",
    ]


@pytest.mark.slow
def test_many_ranks_with_a_thousand_timers_each(path: str) -> None:
    lines = f"""
timers = FileTimerClient({path!r})
began = time.monotonic()
for i in range(1000): timers.acquire(str(i), time.monotonic() + 100 + i)
for i in range(1000): timers.release(str(i))
print(time.monotonic() - began, flush=True)
"""
    server = FileTimerServer(path)
    server.start()
    workers = [client(path, lines) for _ in range(64)]
    try:
        assert max(float(worker.says()) for worker in workers) < 30
        assert [worker.wait() for worker in workers] == [0] * 64
    finally:
        for worker in workers:
            worker.__exit__()
        server.stop()


@pytest.fixture
def torch_client() -> str:
    pytest.importorskip("torch")
    return "from torch.distributed.elastic.timer import FileTimerClient, configure, expires\nimport time\n"


@pytest.mark.torch
def test_torchs_own_client_works_with_our_server(path: str, torch_client: str) -> None:
    told: list[str] = []
    server = FileTimerServer(
        path, log_event=lambda _name, request: told.append(request.scope if request else "")
    )
    server.start()
    lines = f"{torch_client}configure(FileTimerClient({path!r}))\n"
    with Worker(lines + IN_TIME) as quick, Worker(lines + LATE) as stuck:
        assert stuck.wait() == -signal.SIGKILL
        assert quick.wait() == 0
    server.stop()
    assert "slow" in told
    assert "quick" not in told
