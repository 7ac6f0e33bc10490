"""The end of a group: the kill ladder, and that nothing is left."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mp_support import ENVIRONMENT, Living, Start, eventually

from elastic.multiprocessing import PContext
from elastic.utils import ending
from elastic.utils.ending import end
from elastic.utils.processes import Process, list_processes, read_process
from elastic.utils.tether import Tether, TetherError

pytest_plugins = ("mp_fixtures",)

# A wrapper's child, a child in a session of its own, and one whose parents have all ended.
FAMILY = """
bash -c 'sleep 1000; :' {mark} &
setsid bash -c 'sleep 1000; :' {mark} &
(setsid bash -c 'bash -c "sleep 1000; :" {mark} &' &)
wait
"""
STUBBORN_STRAY = "(setsid bash -c 'trap : TERM; while :; do sleep 1; done' {mark} &); sleep 1000"
STUBBORN = "trap '' TERM; " + FAMILY.replace("bash -c 'sleep", 'bash -c \'trap "" TERM; sleep')


def drive(context: PContext) -> None:
    """What an agent's loop does, until the group is over."""
    deadline = time.monotonic() + 60
    while not context.stopped:
        assert time.monotonic() < deadline
        context.advance()
        if not context.stopped:
            due = context.next_wakeup()
            assert due is not None, "it would wait for ever"
            select.select([context], [], [], max(0.0, due - time.monotonic()))


def test_the_whole_family_ends_at_a_request(start: Start, mark: str, living: Living) -> None:
    context = start(FAMILY.format(mark=mark), FAMILY.format(mark=mark))
    eventually(lambda: len(living()) >= 6)
    before = time.monotonic()
    context.stop(timeout=1000)
    assert not context.stopped
    drive(context)
    assert time.monotonic() - before < 60  # nobody had to be killed
    assert living() == []
    result = context.poll()
    assert result is not None
    assert (result.state, result.failures) == ("STOPPED", {})
    assert {victim.exitcode for victim in result.victims.values()} == {-signal.SIGTERM}


def test_whoever_ignores_the_request_is_killed(
    start: Start, mark: str, living: Living, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    context = start(STUBBORN.format(mark=mark), f"trap 'exit 9' TERM; sleep 1000 & > {ready}; wait")
    eventually(lambda: len(living()) >= 3 and ready.exists())
    context.stop(timeout=60)

    def only_one_runs() -> bool:
        context.advance()
        return context.running() == {0}

    eventually(only_one_runs)
    context.close(timeout=0.5)
    assert living() == []
    result = context.poll()
    assert result is not None
    assert result.victims[0].exitcode == -signal.SIGKILL
    assert result.victims[1].exitcode == 9
    assert context.survivors == []


def test_a_second_request_shortens(start: Start, mark: str, living: Living) -> None:
    context = start(STUBBORN.format(mark=mark))
    eventually(lambda: len(living()) >= 3)
    context.stop(timeout=1000)
    context.stop(timeout=2000)
    context.advance()
    first = context.next_wakeup()
    assert first is not None
    assert first < time.monotonic() + 1001
    context.stop(signal.SIGKILL)
    drive(context)
    assert living() == []


def test_a_worker_gets_its_time_to_save(start: Start, tmp_path: Path) -> None:
    saved, ready = tmp_path / "saved", tmp_path / "ready"
    program = (
        "import pathlib, signal, time\n"
        f"def save(*_): time.sleep(0.3); pathlib.Path('{saved}').touch(); raise SystemExit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"pathlib.Path('{ready}').touch()\n"
        "time.sleep(1000)\n"
    )
    # Behind a shell that ends at once: the time is the session's, not the shell's.
    context = start(f'{sys.executable} -c "{program}" & wait')
    eventually(ready.exists)
    context.close(timeout=60)
    assert saved.exists()


def test_a_stopped_process_can_answer(start: Start, tmp_path: Path) -> None:
    context = start("trap 'exit 4' TERM; kill -STOP $$; sleep 1000 & wait")
    pid = context.pids()[0]
    eventually(lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text())
    context.close(timeout=60)
    assert context.poll().victims[0].exitcode == 4  # type: ignore[union-attr]


def test_what_a_finished_worker_left_is_swept(start: Start, mark: str, living: Living) -> None:
    context = start(f"(setsid bash -c 'sleep 1000; :' {mark} &) ; exit 0")
    result = eventually(context.poll)
    eventually(living)
    assert result.state == "SUCCEEDED"
    context.close()
    assert living() == []
    assert context.poll().state == "SUCCEEDED"  # type: ignore[union-attr]


def test_who_failed_before_the_request_is_no_victim(start: Start) -> None:
    context = start("exit 7", "sleep 1000")
    pid = context.pids()[0]
    eventually(lambda: "State:\tZ" in Path(f"/proc/{pid}/status").read_text())
    context.close()  # nobody has looked yet
    result = context.poll()
    assert result is not None
    assert list(result.failures) == [0]
    assert list(result.victims) == [1]


def test_no_descriptor_thread_or_child_is_left(start: Start) -> None:
    def held() -> tuple[int, int, set[int]]:
        children = {process.pid for process in list_processes().values() if process.parent == os.getpid()}
        fds, threads = Path("/proc/self/fd"), Path("/proc/self/task")
        return len(list(fds.iterdir())), len(list(threads.iterdir())), children

    start("exit 0").wait(60)
    before = held()
    for _ in range(3):
        start("exit 0", "exit 1", "sleep 1000").wait(60)
    # The system ends a thread a little after it was joined.
    eventually(lambda: held()[1] <= before[1])
    fds, _, children = held()
    # Something of an earlier test may have ended meanwhile; what counts is that nothing was added.
    assert fds <= before[0]
    assert children <= before[2]


def test_what_can_not_be_killed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing in user space is unkillable: here it is that no signal arrives.
    sent: list[int] = []

    def lose(_process: Process, number: int) -> bool:
        sent.append(number)
        return True

    monkeypatch.setattr(ending, "send_signal", lose)
    child = subprocess.Popen(["sleep", "1000"])
    try:
        process = read_process(child.pid)
        assert process is not None
        assert end(lambda: [process], grace=0.1, give_up_after=0.5) == [process]
        assert (sent[0], set(sent[1:])) == (signal.SIGTERM, {signal.SIGKILL})
    finally:
        child.kill()
        child.wait()


def test_nobody_else_is_touched(start: Start) -> None:
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    sibling = subprocess.Popen(["sleep", "1000"])
    try:
        start("sleep 1000").close()
        start("exit 0").wait(60)
        assert stranger.poll() is None
        assert sibling.poll() is None
    finally:
        for process in (stranger, sibling):
            process.kill()
            process.wait()


AGENT = """
import os, sys, time
from elastic.multiprocessing import become_subreaper, DefaultLogsSpecs, start_processes
become_subreaper()
worker = sys.argv[1]
context = start_processes("d", "bash", ("-c", worker), {0: {}, 1: {}}, DefaultLogsSpecs(sys.argv[2]))
print("started", flush=True)
"""


@contextmanager
def agent(then: str, worker: str, logs: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has started two workers and goes on with ``then``."""
    with subprocess.Popen(
        [sys.executable, "-c", AGENT + textwrap.dedent(then), worker, str(logs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        try:
            assert says(process) == "started\n"
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str]) -> str:
    """The next line of its output."""
    assert process.stdout is not None
    return process.stdout.readline()


def test_nothing_outlives_a_killed_agent(mark: str, living: Living, tmp_path: Path) -> None:
    with agent("time.sleep(1000)", STUBBORN.format(mark=mark), tmp_path) as process:
        eventually(lambda: len(living()) >= 6)
        process.kill()
    eventually(lambda: not living())


WATCHED = """
first = context._tether.pid
print(first, flush=True)
while context._tether.pid == first:
    context.wait(1)
print(context._tether.pid, flush=True)
time.sleep(1000)
"""


def test_not_even_if_the_process_that_sees_to_it_was_killed(
    mark: str, living: Living, tmp_path: Path
) -> None:
    with agent(WATCHED, STUBBORN.format(mark=mark), tmp_path) as process:
        eventually(lambda: len(living()) >= 6)
        helper = int(says(process))
        os.kill(helper, signal.SIGKILL)
        assert int(says(process)) != helper
        process.kill()
    eventually(lambda: not living())


def test_a_closed_tether_starts_no_helper_any_more() -> None:
    tether = Tether.start()
    tether.close()
    for call in (tether.renew, lambda: tether.hold(os.getpid())):
        with pytest.raises(TetherError, match="is closed"):
            call()
    assert is_gone(tether.pid)


def is_gone(pid: int) -> bool:
    process = read_process(pid)
    return process is None or process.is_dead


@pytest.mark.parametrize("function", ["sleep_in_children", "Named('mp_forked', 'family')"])
def test_nothing_of_forked_workers_outlives_a_killed_agent(
    mark: str, living: Living, tmp_path: Path, function: str
) -> None:
    """Killed while workers have children, and while the module of the function is still being imported."""
    program = f"""
    import mp_functions
    from mp_functions import *
    start_processes("f", {function}, (sys.argv[1],), {{0: {{}}, 1: {{}}}}, start_method="fork")
    time.sleep(1000)
    """
    imports = tmp_path / "imports"
    env = {
        **ENVIRONMENT,
        "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{Path(__file__).parent}",
        "WHEN_IMPORTED": "wait",
        "MARK_FILE": str(imports),
    }
    start = AGENT.partition("worker =")[0] + textwrap.dedent(program)
    with subprocess.Popen([sys.executable, "-c", start, mark], env=env) as process:
        try:
            if function == "sleep_in_children":
                eventually(lambda: len(living()) >= 3)  # this process, and a child of each worker
            else:
                eventually(imports.exists)
            members = {found.pid for found in list_processes().values() if found.parent == process.pid}
        finally:
            process.kill()
    assert members
    eventually(lambda: not living() and all(is_gone(pid) for pid in members))


def test_not_even_if_a_forked_copy_of_it_lives_on(mark: str, living: Living, tmp_path: Path) -> None:
    # The copy has both ends of everything, so the end of a pipe alone would never be seen.
    copies = "pid = os.fork()\nif pid: print(pid, flush=True)\ntime.sleep(1000)"
    with agent(copies, FAMILY.format(mark=mark), tmp_path) as process:
        copy = int(says(process))
        try:
            eventually(lambda: len(living()) >= 6)
            process.kill()
            eventually(lambda: not living())
        finally:
            os.kill(copy, signal.SIGKILL)


def test_a_stray_is_collected_by_its_agent(mark: str, living: Living, tmp_path: Path) -> None:
    strays = f"setsid bash -c 'sleep 1000; :' {mark} & (bash -c 'sleep 1000; :' {mark} &) ; wait"
    then = """
    from elastic.utils.processes import list_processes
    sys.stdin.readline()
    context.close()
    print([process for process in list_processes().values() if process.parent == os.getpid()], flush=True)
    """
    with agent(then, strays, tmp_path) as process:
        eventually(lambda: len(living()) >= 4)
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert says(process) == "[]\n"
    assert living() == []


def test_an_inner_job_ends_with_the_outer_one(mark: str, living: Living, tmp_path: Path) -> None:
    # The strays of the inner job are nobody's descendants any more, and its own tether is killed too.
    (tmp_path / "inner.py").write_text(AGENT.replace("become_subreaper()\n", "") + "time.sleep(1000)")
    command = (
        f'exec {sys.executable} {tmp_path}/inner.py "{STUBBORN_STRAY.format(mark=mark)}" {tmp_path}/inner'
    )
    with agent("time.sleep(1000)", command, tmp_path / "outer") as process:
        eventually(lambda: len(living()) >= 4)
        process.kill()
    eventually(lambda: not living())


def test_a_killed_tether_is_replaced() -> None:
    with Tether.start() as tether:
        worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        try:
            tether.hold(worker.pid)
            first = tether.pid
            os.kill(first, signal.SIGKILL)
            eventually(lambda: "State:\tZ" in Path(f"/proc/{first}/status").read_text())
            tether.hold(worker.pid)
            assert tether.pid != first
            tether.release(worker.pid)
            tether.release(worker.pid)
        finally:
            worker.kill()
            worker.wait()
    assert not Path(f"/proc/{tether.pid}").exists()


def test_a_tether_that_is_let_go_signals_nobody() -> None:
    worker = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        with Tether.start() as tether:
            tether.hold(worker.pid)
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.wait()


def test_a_subreaper_adopts() -> None:
    program = (
        "import os, subprocess\n"
        "from elastic.multiprocessing import become_subreaper\n"
        "become_subreaper()\n"
        "command = '(me=$BASHPID; parent() { ps -o ppid= -p $me; };'\n"
        "command += ' while [ $(parent) = $$ ]; do sleep 0.05; done; parent) &'\n"
        "out = subprocess.run(['bash', '-c', command], capture_output=True)\n"
        "print(int(out.stdout) == os.getpid())\n"
    )
    environment = ENVIRONMENT
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.stderr) == ("True\n", "")
