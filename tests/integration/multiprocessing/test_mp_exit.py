"""Exit codes, results, and the start of a group."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from mp_support import Living, Start, eventually

from elastic.multiprocessing import DefaultLogsSpecs, Std, SubprocessContext, exit_code_for, start_processes

pytest_plugins = ("mp_fixtures",)


@pytest.mark.parametrize(
    ("command", "exitcode", "code"),
    [
        ("exit 3", 3, 3),
        ("exit 77", 77, 77),
        ("exit 255", 255, 255),
        ("ulimit -c 0; kill -SEGV $$", -signal.SIGSEGV, 139),
        ("kill -KILL $$", -signal.SIGKILL, 137),
        ("kill -TERM $$", -signal.SIGTERM, 143),
        ("kill -37 $$", -37, 165),
    ],
)
def test_how_a_worker_ended_is_carried_up(start: Start, command: str, exitcode: int, code: int) -> None:
    result = start("exit 0", command).wait(60)
    assert result is not None
    assert (result.state, result.is_failed(), list(result.failures)) == ("FAILED", True, [1])
    assert result.failures[1].exitcode == exitcode
    assert exit_code_for(result.failures[1]) == code


def test_all_well(start: Start) -> None:
    context = start("exit 0", "exit 0", "exit 0")
    result = context.wait(60)
    assert result is not None
    assert (result.state, result.return_values) == ("SUCCEEDED", {0: None, 1: None, 2: None})
    assert not result.failures
    assert not result.victims
    assert context.stopped


def test_wait_is_all_or_nothing_and_names_its_victims(start: Start) -> None:
    context = start("sleep 1000", "exit 5", "sleep 1000")
    result = context.wait(60)
    assert result is not None
    assert list(result.failures) == [1]
    assert sorted(result.victims) == [0, 2]
    assert all(victim.victim and victim.exitcode == -signal.SIGTERM for victim in result.victims.values())


def test_a_failure_alone_ends_nothing(start: Start) -> None:
    context = start("exec sleep 1000", "exit 5")
    result = eventually(context.poll)
    assert list(result.failures) == [1]
    assert select.select([], [], [], 0.2) == ([], [], [])
    assert context.poll().victims == {}  # type: ignore[union-attr]
    assert Path(f"/proc/{context.pids()[0]}").exists()


def test_wait_looks_once_and_for_a_time(start: Start) -> None:
    context = start("exec sleep 1000")
    assert context.wait(timeout=0) is None
    before = time.monotonic()
    assert context.wait(timeout=0.2) is None
    assert time.monotonic() - before >= 0.2


def test_failures_come_in_the_order_of_the_exits(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    subprocess.run(["mkfifo", gate], check=True)
    context = start(f"read < {gate}; exit 4", "exit 5")
    eventually(context.poll)
    gate.write_text("go\n")
    result = eventually(lambda: (found := context.poll()) and len(found.failures) == 2 and found)
    assert list(result.failures) == [1, 0]
    assert result.failures[1].observed < result.failures[0].observed


def test_the_descriptor_tells_of_an_exit(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    subprocess.run(["mkfifo", gate], check=True)
    context = start(f"read < {gate}; exit 4")
    assert context.poll() is None
    assert context.next_wakeup() is None
    assert select.select([context], [], [], 0) == ([], [], [])
    gate.write_text("go\n")
    assert select.select([context], [], [], 60)[0] == [context]


def test_each_worker_has_its_environment_and_a_session(start: Start, tmp_path: Path) -> None:
    context = start_processes(
        "default",
        "bash",
        ("-c", "echo $OWN $SHARED $TORCHELASTIC_ERROR_FILE; ps -o sid= -p $$"),
        {0: {"OWN": "a", "SHARED": "s"}, 1: {"OWN": "b", "SHARED": "s"}},
        DefaultLogsSpecs(tmp_path, redirects=Std.OUT),
    )
    pids = context.pids()
    context.wait(60)
    for rank, own in ((0, "a"), (1, "b")):
        first, second = Path(context.stdouts[rank]).read_text().splitlines()
        assert first == f"{own} s {tmp_path}/run/round_0/{rank}/error.json"
        assert int(second) == pids[rank]


def test_a_failed_start_leaves_nobody(start: Start, mark: str, living: Living, tmp_path: Path) -> None:
    (tmp_path / "one").write_text(f"#!/bin/bash\nbash -c 'sleep 1000; :' {mark} & sleep 1000\n")
    (tmp_path / "one").chmod(0o755)

    class Half(SubprocessContext):
        def _command(self, local_rank: int):  # type: ignore[no-untyped-def]
            command = super()._command(local_rank)
            if local_rank == 2:
                eventually(living)  # the ones before it have really begun
                return type(command)(argv=["/does/not/exist"])
            return command

    context = Half(
        "d", str(tmp_path / "one"), {0: (), 1: (), 2: ()}, {0: {}, 1: {}, 2: {}}, DefaultLogsSpecs()
    )
    with pytest.raises(
        FileNotFoundError, match=r"worker 2 can't be started: '/does/not/exist': No such file"
    ):
        context.start()
    assert context.stopped
    assert living() == []


def test_what_can_not_be_executed_is_named(start: Start, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(PermissionError, match=r"plain.*make the file executable"):
        start_processes("d", str(tmp_path / "plain"), (), {0: {}}, DefaultLogsSpecs(tmp_path))


@pytest.mark.parametrize(
    ("args", "envs", "text"),
    [
        ({0: (), 2: ()}, {0: {}, 1: {}}, r"args are \[0, 2\]"),
        ({0: ()}, {1: {}}, r"envs are \[1\]"),
        ({}, {0: {}}, r"args are \[\]"),
    ],
)
def test_ranks_must_match(
    args: dict[int, tuple[str, ...]], envs: dict[int, dict[str, str]], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        start_processes("d", "true", args, envs)


@pytest.mark.parametrize(
    ("entrypoint", "args", "envs", "words"),
    [
        (Path("true"), (), {0: {}}, "the entrypoint is PosixPath('true'): give a command as a text"),
        ("true", (), [{}], "envs is no mapping: give the environment of each worker by its local rank"),
        ("true", (), {0: {"A": 1}}, "the environment of local rank 0 has 'A': 1; give a text"),
        ("true", (), {0: {"A=": "1"}}, "which no process can have"),
        ("true", (), {0: {"A": "1\0"}}, "which no process can have"),
        ("true", ("a\0",), {0: {}}, "local rank 0 has the argument 'a\\x00': leave out NUL"),
    ],
)
def test_what_no_process_can_be_given_is_named(entrypoint: Any, args: Any, envs: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        start_processes("n", entrypoint, args, envs)


def test_a_text_is_no_list_of_arguments() -> None:
    with pytest.raises(ValueError, match=r"args is the text '-l'"):
        start_processes("d", "ls", "-l", {0: {}})


def test_a_context_starts_once_and_may_be_closed_unstarted() -> None:
    context = SubprocessContext("d", "true", {0: ()}, {0: {}}, DefaultLogsSpecs())
    context.close()
    assert context.stopped
    assert context.poll() is None
    again = start_processes("d", "true", (), {0: {}})
    with pytest.raises(RuntimeError, match="started before"):
        again.start()
    again.close()
    again.close()


def test_ignored_child_signals_are_refused() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(RuntimeError, match="SIGCHLD is ignored"):
            start_processes("d", "true", (), {0: {}})
    finally:
        signal.signal(signal.SIGCHLD, before)
