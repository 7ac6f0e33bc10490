"""The stacks of workers that hang, written before they are stopped."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import mp_functions as functions
import pytest
from mp_support import ENVIRONMENT, Start, eventually

from elastic.multiprocessing import DefaultLogsSpecs, PContext
from elastic.utils.processes import read_process

pytest_plugins = ("mp_fixtures",)

HANG = """
import pathlib, time, threading
def hang_here():
    pathlib.Path({mark!r}).touch()
    time.sleep(1000)
threading.Thread(target=lambda: time.sleep(1000), name="other", daemon=True).start()
hang_here()
"""
REGISTER = "from elastic.multiprocessing import register_stack_dump\nassert register_stack_dump()\n"


def stacks(tmp_path: Path) -> list[Path]:
    return sorted(tmp_path.glob("logs/run/round_0/*/stacks.txt"))


def python(text: str) -> str:
    """A shell command that becomes a Python program."""
    return f"exec {sys.executable} -c {shlex.quote(text)}"


def started(context: PContext, *marks: Path) -> PContext:
    eventually(lambda: all(mark.exists() for mark in marks))
    return context


RECORD = "from elastic.multiprocessing import record\n@record\ndef main(): exec({text!r}, {{}})\nmain()\n"


@pytest.mark.parametrize("kind", ["command", "recorded", "spawn", "fork"])
def test_all_threads_of_a_hung_worker_are_shown(
    start: Start, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastic.multiprocessing.stacks.ANSWER_SECONDS", 60.0)
    marks = [tmp_path / "0", tmp_path / "1"]
    programs = [HANG.format(mark=str(mark)) for mark in marks]
    if kind in {"command", "recorded"}:
        scripts = [REGISTER + text if kind == "command" else RECORD.format(text=text) for text in programs]
        commands = [python(script) for script in scripts]
        context = start(*commands, dump_stacks=True, env={"PYTHONPATH": ENVIRONMENT["PYTHONPATH"]})
    else:
        workers = [(text,) for text in programs]
        context = start(*workers, function=functions.execute, start_method=kind, dump_stacks=True)
    started(context, *marks).stop()

    def are_shown() -> bool:
        texts = [path.read_text() for path in stacks(tmp_path)]
        assert len(texts) <= 2
        shown = ["in hang_here" in text and text.count("most recent call first") == 2 for text in texts]
        return shown == [True, True]

    eventually(are_shown)
    context.close()  # asked twice: now
    assert are_shown()
    result = context.poll()
    assert result is not None
    assert {victim.exitcode for victim in result.victims.values()} == {-signal.SIGTERM}


def test_other_scripts_are_left_to_py_spy(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in with its command line; the first worker isn't Python, and the tool hangs over the third."""
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@"\n[ -e {tmp_path}/hang-$4 ] && exec sleep 1000\nexit 0\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("elastic.multiprocessing.stacks.TOOL_SECONDS", 4.0)
    marks = [tmp_path / "1", tmp_path / "2"]
    scripts = [python(HANG.format(mark=str(mark))) for mark in marks]
    context = started(start("exec sleep 1000", *scripts, dump_stacks=True), *marks)
    pids = context.pids()
    (tmp_path / f"hang-{pids[2]}").touch()
    context.close()
    expected = [f"dump --nonblocking --pid {pids[rank]}\n" for rank in (1, 2)]
    assert [path.read_text() for path in stacks(tmp_path)] == expected


def test_whoever_ends_well_leaves_no_file(start: Start, tmp_path: Path) -> None:
    context = start(("value = 1",), function=functions.execute, dump_stacks=True)
    result = context.wait(60)
    assert result is not None
    assert result.return_values == {0: 1}
    assert stacks(tmp_path) == []


def test_nobody_is_asked_without_the_wish(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "0"
    program = REGISTER.replace("assert ", "assert not ") + HANG.format(mark=str(mark))
    started(start((program,), function=functions.execute), mark).close()
    assert stacks(tmp_path) == []


def test_a_kill_waits_for_no_stacks(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "0"
    context = start((HANG.format(mark=str(mark)),), function=functions.execute, dump_stacks=True)
    started(context, mark)
    context.stop(signal.SIGKILL)
    assert context.next_wakeup() is not None
    context.close()
    assert stacks(tmp_path) == []


def test_a_worker_that_can_not_answer_costs_little(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "0"
    context = start((HANG.format(mark=str(mark)),), function=functions.execute, dump_stacks=True)
    started(context, mark)
    pid = context.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: (process := read_process(pid)) is not None and process.state == "T")
    context.stop()
    wakeup = context.next_wakeup()
    assert wakeup is not None
    assert wakeup < time.monotonic() + 5  # not the thirty seconds of the request itself
    context.stop(timeout=10.0)  # asked twice: now
    context.close()
    result = context.poll()
    assert result is not None
    assert result.victims[0].exitcode == -signal.SIGTERM


def test_without_error_files_there_is_nowhere_to_write(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "0"
    logs = DefaultLogsSpecs(os.devnull)
    program = HANG.format(mark=str(mark))
    started(start((program,), function=functions.execute, logs=logs, dump_stacks=True), mark).close()
    assert list(tmp_path.rglob("stacks.txt")) == []
