"""What workers write: to files, to the console, whole and in full."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from mp_support import ENVIRONMENT, Start, eventually

from elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, Std
from elastic.multiprocessing.console import STALL_SECONDS, Console
from elastic.multiprocessing.pump import OutputPump
from elastic.multiprocessing.streams import StreamPlan

Captured: TypeAlias = pytest.CaptureFixture[str]
pytest_plugins = ("mp_fixtures",)

LAUNCH = """
import sys
from elastic.multiprocessing import DefaultLogsSpecs, Std, console, contexts, pump, start_processes
if sys.argv[6] == "1":
    contexts.DRAIN_SECONDS = console.STALL_SECONDS = pump.STALL_SECONDS = 60.0
logs = DefaultLogsSpecs(sys.argv[1], tee=Std(int(sys.argv[4])))
envs = {rank: {"RANK": str(rank)} for rank in range(int(sys.argv[3]))}
result = start_processes("default", "bash", ("-c", sys.argv[2]), envs, logs).wait()
stream = sys.stdout if sys.argv[5] == "1" else sys.stderr
print("RESULT", result.state, sorted(result.failures), file=stream)
for failure in result.failures.values():
    print("TAIL", *failure.stderr_tail, sep="|", file=stream)
"""


def launcher(
    logs: Path, command: str, *, workers: int = 1, tee: int = 3, result_to: int = 1, is_patient: bool = True
) -> list[str]:
    """The command of a process that launches workers, with its real descriptors, and tells the result.

    A patient one does not take a reader that the system lets wait for a blocked one.
    """
    numbers = (workers, tee, result_to, int(is_patient))
    return [sys.executable, "-c", LAUNCH, str(logs), command, *map(str, numbers)]


def launch(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=100, check=True)


def program(text: str) -> str:
    """A shell command that runs a Python program."""
    return f"{sys.executable} -c {shlex.quote(text)}"


def test_lines_are_never_torn(tmp_path: Path) -> None:
    # Unbuffered single bytes and halves of lines, from eight workers at once.
    text = """
import os
rank = os.environ["RANK"]
for number in range(2000):
    line = f"{rank} {number} " + "x" * (number % 300) + " end\\n"
    half = len(line) // 2
    os.write(1, line[:half].encode()); os.write(1, line[half:].encode())
    if number % 4 == 0: os.write(2, (f"{rank} {number} e" + " end\\n").encode())
"""
    done = launch(launcher(tmp_path, program(text), workers=8))
    lines = done.stdout.decode().splitlines()
    assert lines.pop() == "RESULT SUCCEEDED []"
    counts: Counter[str] = Counter()
    for line in lines:
        found = re.fullmatch(r"\[default(\d)\]:(\d) (\d+) (x*) end", line)
        assert found is not None, line
        prefixed, rank, number, filling = found.groups()
        assert (prefixed, len(filling)) == (rank, int(number) % 300)
        counts[rank] += 1
    assert counts == {str(rank): 2000 for rank in range(8)}
    errors = done.stderr.decode().splitlines()
    assert len(errors) == 8 * 500
    assert all(line.endswith(" e end") and line[8] == line.split(":")[1][0] for line in errors)


def test_nothing_is_missing_after_a_crash(start: Start, tmp_path: Path) -> None:
    text = 'import os; os.write(2, b"y" * 1_000_000 + b"\\nlast words"); os.abort()'
    command = "ulimit -c 0; exec " + program(text)
    for logs in (DefaultLogsSpecs(tmp_path, tee=Std.ERR), DefaultLogsSpecs(tmp_path, redirects=Std.ERR)):
        result = start(command, logs=logs).wait(60)
        assert result is not None
        assert result.failures[0].signal_name() == "SIGABRT"
        assert result.failures[0].stderr_tail[-1] == "last words"
        assert Path(result.stderrs[0]).stat().st_size == 1_000_011


def test_the_tail_is_known_without_any_log(tmp_path: Path) -> None:
    done = launch(launcher(tmp_path, "echo first >&2; echo out; echo second >&2; exit 3", tee=0))
    assert done.stdout == b"out\nRESULT FAILED [0]\nTAIL|first|second\n"
    assert done.stderr == b"first\nsecond\n"  # shown as it is


def test_bytes_of_any_kind_survive(start: Start, tmp_path: Path) -> None:
    text = (
        "import os\n"
        "def put(data):\n"
        "    while data: data = data[os.write(1, data):]\n"
        'put(b"nul \\0 bad \\xff\\n" + b"z" * 10_000_000 + b"\\n" + b"10%\\r20%\\r30%\\n" + b"no end")\n'
    )
    done = launch(launcher(tmp_path, program(text)))
    whole = b"nul \0 bad \xff\n" + b"z" * 10_000_000 + b"\n" + b"10%\r20%\r30%\n" + b"no end"
    assert (tmp_path / "run/round_0/0/stdout.log").read_bytes() == whole
    lines = done.stdout.split(b"\n")
    assert lines[0] == b"[default0]:nul \0 bad \xff"
    assert lines[1] == b"[default0]:" + b"z" * 10_000_000
    assert lines[-4:] == [b"[default0]:30%", b"[default0]:no end", b"RESULT SUCCEEDED []", b""]


def test_a_held_pipe_does_not_hold_the_result(start: Start, tmp_path: Path) -> None:
    # What the worker leaves behind keeps its stderr open, and even goes on writing.
    command = "(trap '' TERM; while sleep 0.05; do echo more >&2; done) & echo mine >&2; exit 3"
    context = start(command, logs=DefaultLogsSpecs(tmp_path, tee=Std.ERR))
    result = eventually(context.poll)
    assert set(result.failures[0].stderr_tail) & {"mine", "more"}
    assert "mine\n" in Path(result.stderrs[0]).read_text()  # the tail may be full of the others
    context.close(timeout=0.1)


def test_a_relative_log_directory_survives_a_chdir(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = 'cd /; echo out; echo "{}" > $TORCHELASTIC_ERROR_FILE; exit 1'
    result = start(command, logs=DefaultLogsSpecs("logs", redirects=Std.OUT)).wait(60)
    assert result is not None
    assert result.failures[0].error_file == f"{tmp_path}/logs/run/round_0/0/error.json"
    assert Path(result.failures[0].error_file).read_text() == "{}\n"
    assert Path(result.stdouts[0]).read_text() == "out\n"


def test_two_attempts_keep_both_logs(start: Start, tmp_path: Path) -> None:
    logs: LogsSpecs = DefaultLogsSpecs(tmp_path, redirects=Std.ALL)
    results = [
        start(f"echo {text}", logs=logs, env={"ELASTIC_ROUND": number}).wait(60)
        for text, number in (("one", "1"), ("two", "2"), ("again", "2"))
    ]
    texts = [Path(result.stdouts[0]).read_text() for result in results if result is not None]
    assert texts == ["one\n", "two\n", "again\n"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["round_1", "round_2", "round_2.1"]


def test_prefixes_and_filtered_lines(start: Start, tmp_path: Path, capfd: Captured) -> None:
    context = start(
        "echo keep this; echo not that; echo keep me >&2",
        "echo keep it",
        logs=DefaultLogsSpecs(tmp_path, tee=Std.ALL),
        log_line_prefixes={1: "<w1> "},
        duplicate_stdout_filters=["keep"],
    )
    context.wait(60)
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == ["<w1> keep it", "[default0]:keep this", "[default0]:not that"]
    assert shown.err == "[default0]:keep me\n"
    filtered = tmp_path / "run/round_0/filtered_stdout.log"
    assert sorted(filtered.read_text().splitlines()) == ["<w1> keep it", "[default0]:keep this"]
    assert not filtered.with_name("filtered_stderr.log").exists()


def test_silenced_workers_write_files_only(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs = DefaultLogsSpecs(tmp_path, tee=Std.OUT, local_ranks_filter={1})
    start("echo zero; echo err >&2", "echo one", logs=logs).wait(60)
    assert capfd.readouterr() == ("[default1]:one\n", "")
    assert (tmp_path / "run/round_0/0/stdout.log").read_text() == "zero\n"


def test_a_blocked_console_loses_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    # Nobody reads the launcher's stdout, yet it must end; the files have everything.
    size = 12_000_000
    text = f"import os\nfor _ in range({size // 100}): os.write(1, b'b' * 99 + b'\\n')"
    read_end, write_end = os.pipe()
    agent = subprocess.Popen(
        launcher(tmp_path, program(text), workers=2, result_to=2, is_patient=False),
        stdout=write_end,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    try:
        os.close(write_end)
        _, errors = agent.communicate(timeout=100)
        assert errors == b"RESULT SUCCEEDED []\n"
        assert os.get_blocking(read_end)
        for rank in range(2):
            assert (tmp_path / f"run/round_0/{rank}/stdout.log").stat().st_size == size
    finally:
        os.close(read_end)
        agent.kill()
        agent.wait()


def test_a_slow_console_gets_every_line(tmp_path: Path) -> None:
    size = 12_000_000
    text = f"import os\nfor _ in range({size // 100}): os.write(1, b'b' * 99 + b'\\n')"
    agent = subprocess.Popen(
        launcher(tmp_path, program(text)),
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert agent.stdout is not None
    lines = [len(line) for line in agent.stdout]
    agent.stdout.close()
    assert agent.wait(60) == 0
    assert Counter(lines)[111] == size // 100


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that nobody reads."""
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


def test_a_console_is_blocked_only_after_a_while(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    console = Console(write_end, limit=200_000)
    console.put(b"x" * 300_000 + b"\n")
    console.write(now=10.0)
    assert (console.is_full, console.is_blocked) == (True, False)
    console.put_lines([b"kept\n"], kept_in="file")
    console.write(now=10.0 + STALL_SECONDS / 2)
    assert not console.is_blocked
    console.write(now=10.0 + STALL_SECONDS)
    assert console.is_blocked
    console.put_lines([b"not shown\n"], kept_in="file")
    console.put_lines([b"nor this\n"], kept_in="file")
    shown = b""
    os.set_blocking(read_end, False)
    while not console.is_empty:
        shown += os.read(read_end, 1_000_000)
        console.write(now=20.0)
    shown += os.read(read_end, 1_000_000)
    assert not console.is_blocked
    notice = b"[2 lines were not shown because this output was blocked; they are in file]\n"
    assert shown == b"x" * 300_000 + b"\nkept\n" + notice
    assert os.get_blocking(write_end)  # the flags of a shared descriptor are not ours to change
    console.close()


def test_last_words_come_through_a_blocked_console(pipe: tuple[int, int]) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    pump = OutputPump([StreamPlan(local_rank=0, read_end=read_end, console=pipe[1], keeps_tail=True)])
    poll = select.poll()
    poll.register(write_end, select.POLLOUT)
    number = 0
    while poll.poll(500):  # until nobody takes any more
        os.write(write_end, b"%04095d\n" % number)
        number += 1
    pump.drain(0)
    eventually(lambda: pump.is_drained(0))
    assert int(pump.tail(0)[-1]) == number - 1
    os.close(write_end)
    pump.finish(0.1)
    assert pump.join(60)


def test_a_closed_console_stops_nobody(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            launcher(tmp_path, "for i in {1..1000}; do echo $i; done", result_to=2),
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            timeout=60,
            check=True,
        )
    finally:
        os.close(write_end)
    assert done.stderr == b"RESULT SUCCEEDED []\n"
    assert len((tmp_path / "run/round_0/0/stdout.log").read_text().splitlines()) == 1000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_does_not_end_the_work(
    start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Full(DefaultLogsSpecs):
        def reify(self, envs):  # type: ignore[no-untyped-def]
            logs = super().reify(envs)
            logs.stdouts[0] = logs.tee_stdouts[0] = "/dev/full"
            return logs

    result = start("echo one; sleep 0.2; echo two", logs=Full(tmp_path, tee=Std.OUT)).wait(60)
    assert result is not None
    assert result.state == "SUCCEEDED"
    assert capfd.readouterr().out.splitlines() == [
        "[default0]:[/dev/full is not written any further: No space left on device]",
        "[default0]:one",
        "[default0]:two",
    ]
