"""The agent's watch over its workers, as its loop uses it, and `elastic.worker` on the other side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.reporting import PATIENCE, ROOT, Worker, follow, watching

from elastic.timer.watch import Overdue, What, WorkerWatch

REPORT = "import os, sys, time, elastic.worker as w\n"


def is_any(overdue: list[Overdue]) -> bool:
    return bool(overdue)


def slates(watch: WorkerWatch) -> list[Path]:
    return list(Path(watch.environment()["ELASTIC_REPORTS"] + ".slates").glob("[0-9]*"))


def wait_for_slates(watch: WorkerWatch, count: int) -> None:
    give_up = time.monotonic() + PATIENCE
    while len(slates(watch)) < count:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_deadline_that_has_passed_names_the_rank_and_the_block() -> None:
    with watching(WorkerWatch()) as watch:
        env = watch.environment()
        with (
            Worker(REPORT + "with w.deadline(60, 'fine'): time.sleep(60)", env) as fine,
            Worker(REPORT + "with w.deadline(0.5, 'load checkpoint'): time.sleep(60)", env) as stuck,
        ):
            wait_for_slates(watch, 2)
            assert watch.poll() == [], "nobody is watched yet"
            watch.begin({0: fine.pid, 1: stuck.pid})
            overdue, _ = follow(watch, is_any)
            assert [(o.local_rank, o.pid, o.what, o.scope) for o in overdue] == [
                (1, stuck.pid, What.DEADLINE, "load checkpoint")
            ]
            assert 0 <= overdue[0].late < 10
            assert "the deadline 'load checkpoint' of rank 5, 0.5 s, has passed" in overdue[0].sentence(5)
            assert watch.poll() == [], "it is told once"
            assert stuck.process.poll() is None, "nobody is ended by looking"


def test_the_loop_sleeps_while_blocks_end_in_time() -> None:
    lines = """
for _ in range(2000):
    with w.deadline(20, 'step'): pass
    w.step()
with w.deadline(0.4, 'stuck'): time.sleep(60)
"""
    with (
        watching(WorkerWatch(first_report=60)) as watch,
        Worker(REPORT + lines, watch.environment()) as worker,
    ):
        watch.begin({0: worker.pid})
        overdue, wakes = follow(watch, is_any)
    assert [o.scope for o in overdue] == ["stuck"]
    assert wakes < 20, "two thousand blocks and steps must not wake it each"


def test_a_deadline_that_is_earlier_than_the_others_is_seen_in_time() -> None:
    """Also behind one that the agent never saw, and while it knows of a later one only."""
    lines = """
with w.deadline(1000, 'outer'):
    for _ in range(50):
        with w.deadline(3, 'short'): pass
        with w.deadline(500, 'long'): time.sleep(0.001)
    with w.deadline(3.5, 'inner'): time.sleep(60)
"""
    with watching(WorkerWatch()) as watch, Worker(REPORT + lines, watch.environment()) as worker:
        watch.begin({0: worker.pid})
        overdue, _ = follow(watch, is_any)
        assert [o.scope for o in overdue] == ["inner"]
        assert overdue[0].late < 10


def test_a_worker_that_never_reports_is_reported_and_one_that_has_ended_is_not() -> None:
    with watching(WorkerWatch(first_report=1.0)) as watch:
        env = watch.environment()
        with (
            Worker("pass") as ended,
            Worker(REPORT + "w.heartbeat(); time.sleep(60)", env) as lively,
            Worker("import time; time.sleep(60)", env) as silent,
        ):
            ended.wait()
            wait_for_slates(watch, 1)
            watch.begin({0: ended.pid, 1: lively.pid, 2: silent.pid})
            overdue, _ = follow(watch, is_any)
            assert [(o.local_rank, o.what) for o in overdue] == [(2, What.FIRST_REPORT)]
            assert "rank 9 has reported nothing in the" in overdue[0].sentence(9)
            assert watch.wakeup() is None, "there is nothing more to wait for"


def test_a_worker_whose_signs_of_life_stop_is_reported_and_again_when_it_stops_again() -> None:
    lines = """
for line in sys.stdin:
    for _ in range(3): w.heartbeat(); time.sleep(0.05)
    w.heartbeat()
    print("beaten", flush=True)
"""
    with (
        watching(WorkerWatch(sign_of_life=3.0)) as watch,
        Worker(REPORT + lines, watch.environment()) as worker,
    ):
        watch.begin({0: worker.pid})
        worker.tell()
        assert worker.says() == "beaten"
        overdue, _ = follow(watch, is_any)
        assert [o.what for o in overdue] == [What.SIGN_OF_LIFE]
        assert "rank 0 gave no sign of life for" in overdue[0].sentence(0)
        worker.tell()
        assert worker.says() == "beaten"
        assert watch.poll() == []
        overdue, _ = follow(watch, is_any)
        assert [o.what for o in overdue] == [What.SIGN_OF_LIFE]


def test_an_agent_that_was_stopped_gives_its_workers_time_to_catch_up() -> None:
    lines = """
try:
    with w.deadline(0.3, 'frozen'):
        print('in', flush=True)
        sys.stdin.readline()
finally:
    print('out', flush=True)
    time.sleep(60)
"""
    with watching(WorkerWatch()) as watch:
        env = watch.environment()
        with Worker(REPORT + lines, env) as frozen, Worker(REPORT + lines, env) as stuck:
            assert [frozen.says(), stuck.says()] == ["in", "in"]
            watch.begin({0: frozen.pid, 1: stuck.pid})
            time.sleep(2.5)  # the agent does not run, and neither do its workers
            assert watch.poll() == []
            frozen.tell()
            assert frozen.says() == "out"
            overdue, _ = follow(watch, is_any)
            assert [o.local_rank for o in overdue] == [1]


def test_without_a_client_there_is_nothing_to_wait_for() -> None:
    with watching(WorkerWatch()) as watch, Worker("import time; time.sleep(60)") as worker:
        watch.begin({0: worker.pid})
        assert watch.wakeup() is None
        assert watch.poll() == []


def test_a_new_round_knows_nothing_of_the_one_before() -> None:
    with watching(WorkerWatch(first_report=60)) as watch:
        env = watch.environment()
        with Worker(REPORT + "with w.deadline(0.3, 'old'): print(1, flush=True); time.sleep(60)", env) as old:
            watch.begin({0: old.pid})
            assert old.says() == "1"
            watch.poll()
            watch.end()
            time.sleep(0.4)
            assert watch.poll() == []
            assert watch.wakeup() is None
            with Worker(REPORT + "with w.deadline(0.5, 'new'): time.sleep(60)", env) as new:
                watch.begin({0: new.pid})  # while the old one is still there
                overdue, _ = follow(watch, is_any)
                assert [(o.pid, o.scope) for o in overdue] == [(new.pid, "new")]


def test_a_killed_process_is_forgotten_and_its_child_counts_as_the_worker() -> None:
    lines = """
if os.fork() == 0:
    with w.deadline(4, 'child'): time.sleep(60)
with w.deadline(0.5, 'killed'): print(1, flush=True); time.sleep(60)
"""
    with watching(WorkerWatch()) as watch, Worker(REPORT + lines, watch.environment()) as worker:
        watch.begin({3: worker.pid})
        assert worker.says() == "1"
        watch.poll()
        os.kill(worker.pid, signal.SIGKILL)
        overdue, _ = follow(watch, is_any)
        assert [(o.local_rank, o.scope) for o in overdue] == [(3, "child")]
        assert overdue[0].pid != worker.pid
        assert len(slates(watch)) == 1, "nothing is left of the killed one"


def test_a_process_of_another_session_has_no_say() -> None:
    lines = REPORT + "with w.deadline(0.1, 'x'): print(1, flush=True); time.sleep(60)"
    with (
        watching(WorkerWatch()) as watch,
        Worker("import time; time.sleep(60)") as worker,
        Worker(lines, watch.environment()) as stranger,
    ):
        watch.begin({0: worker.pid})
        assert stranger.says() == "1"
        with Path(watch.environment()["ELASTIC_REPORTS"]).open("wb", buffering=0) as pipe:
            for pid in (stranger.pid, os.getpid(), 1):
                pipe.write(b'{"pid": %d, "scope_id": "y", "expiration_time": 0, "signal": 9}\n' % pid)
        time.sleep(0.3)
        assert watch.poll() == []
        assert watch.series() == {}


def test_the_times_of_steps_and_sections_are_there_to_read() -> None:
    lines = """
for i in range(6):
    with w.section('forward'): time.sleep(0.01)
    w.step()
print(1, flush=True); time.sleep(60)
"""
    with watching(WorkerWatch()) as watch, Worker(REPORT + lines, watch.environment()) as worker:
        watch.begin({2: worker.pid})
        assert worker.says() == "1"
        watch.poll()
        series = watch.series()
        assert {name: list(ranks) for name, ranks in series.items()} == {"step": [2], "forward": [2]}
        assert series["step"][2].count == 5, "the first call only starts the clock"
        assert series["forward"][2].count == 6
        assert all(0.01 <= seconds < 10 for seconds in series["forward"][2].durations)


def test_torchs_client_is_told_of_it_where_that_is_asked_for(tmp_path: Path) -> None:
    with watching(WorkerWatch(path=tmp_path / "watchdog", for_torch=True)) as watch:
        assert watch.environment() == {
            "ELASTIC_REPORTS": str(tmp_path / "watchdog"),
            "TORCHELASTIC_TIMER_FILE": str(tmp_path / "watchdog"),
        }
        with Worker("import time; time.sleep(60)") as worker:
            watch.begin({0: worker.pid})
            line = '{"version": 1, "pid": %d, "scope_id": "torch", "expiration_time": %f, "signal": 9}\n'
            with Path(tmp_path / "watchdog").open("w") as pipe:
                pipe.write(line % (worker.pid, time.time() + 0.2))
            overdue, _ = follow(watch, is_any)
            assert [(o.local_rank, o.scope) for o in overdue] == [(0, "torch")]
    assert list(tmp_path.iterdir()) == []


def test_without_an_agent_reports_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import elastic.worker as w
w.step(); w.step(); w.heartbeat()
with w.section('x'), w.deadline(60): pass
try:
    with w.deadline(1e-6, 'late'): sum(range(100000))
except TimeoutError as e:
    print(e)
"""
    env = {k: v for k, v in os.environ.items() if k != "ELASTIC_REPORTS"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("'late' took")
    assert done.stderr == ""


def test_an_agent_that_has_died_costs_a_worker_one_warning() -> None:
    lines = REPORT + "import logging; logging.basicConfig(stream=sys.stdout)\nprint('go', flush=True)\n"
    lines += """
for line in sys.stdin:
    for _ in range(50):
        with w.deadline(10, 'x'): w.step()
    print('done', flush=True)
"""
    with watching(WorkerWatch()) as watch, Worker(lines, watch.environment()) as worker:
        watch.begin({0: worker.pid})
        assert worker.says() == "go"
        watch.close()
        for _ in range(3):
            worker.tell()
        assert "cannot write to" in worker.says()
        assert [worker.says() for _ in range(3)] == ["done"] * 3


def test_negative_times_are_refused() -> None:
    with pytest.raises(ValueError, match="first_report is -1: it must not be negative"):
        WorkerWatch(first_report=-1)
