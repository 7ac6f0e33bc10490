"""The documented behaviour of worker groups, one test a row, for commands and for functions.

A row is what torch's and tensorplay's documentation or code say, as far as this project keeps it; where it
keeps neither, the test says what holds instead.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import mp_functions as functions
import pytest
from mp_support import DRAIN_SECONDS, Living, Start, eventually

from elastic.multiprocessing import (
    ChildFailedError,
    DefaultLogsSpecs,
    MultiprocessContext,
    PContext,
    ProcessFailure,
    Redirects,
    RunProcsResult,
    SignalException,
    Std,
    SubprocessContext,
    start_processes,
)
from elastic.multiprocessing.redirects import Streams

pytest_plugins = ("mp_fixtures",)

Captured: TypeAlias = pytest.CaptureFixture[str]
Launch: TypeAlias = Callable[..., PContext]

NOBODY = "<N/A>"
SLEEP = "import time; time.sleep(1000)"


@pytest.fixture(params=["command", "spawn", "fork"])
def kind(request: pytest.FixtureRequest) -> str:
    """How the workers are started."""
    return str(request.param)


@pytest.fixture
def launch(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Starts a worker for each Python program, all of them of one kind."""
    monkeypatch.setattr(DRAIN_SECONDS, 60.0)
    contexts: list[PContext] = []

    def make(*programs: str, logs: DefaultLogsSpecs | None = None, **options: object) -> PContext:
        envs = {rank: {"RANK": str(rank), "ELASTIC_RUN_ID": "job"} for rank in range(len(programs))}
        context = start_processes(
            "trainer",
            sys.executable if kind == "command" else functions.execute,
            {rank: (("-c", text) if kind == "command" else (text,)) for rank, text in enumerate(programs)},
            envs,
            logs or DefaultLogsSpecs(tmp_path / "logs"),
            start_method="spawn" if kind == "command" else kind,
            **options,  # type: ignore[arg-type]
        )
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close(timeout=0)


def ended(context: PContext) -> RunProcsResult:
    result = context.wait(60)
    assert result is not None
    return result


# -- start_processes and PContext ----------------------------------------------------------------------


def test_signature() -> None:
    parameters = inspect.signature(start_processes).parameters
    positional = [name for name, value in parameters.items() if value.kind is not value.KEYWORD_ONLY]
    assert positional == [
        "name",
        "entrypoint",
        "args",
        "envs",
        "logs_specs",
        "log_line_prefixes",
        "start_method",
        "numa_options",
    ]
    assert {"duplicate_stdout_filters", "duplicate_stderr_filters"} <= parameters.keys()


def test_args_by_rank_or_the_same_for_all(tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(tmp_path)
    by_rank = start_processes(
        "n", functions.execute, {0: ("value = 1",), 1: ("value = 2",)}, {0: {}, 1: {}}, logs
    )
    assert ended(by_rank).return_values == {0: 1, 1: 2}
    shared = start_processes("n", functions.execute, ("value = 3",), {0: {}, 1: {}}, logs)
    assert ended(shared).return_values == {0: 3, 1: 3}


def test_rank_set_check(kind: str) -> None:
    entrypoint = "true" if kind == "command" else functions.execute
    with pytest.raises(ValueError, match="local ranks of envs are"):
        start_processes("n", entrypoint, (), {1: {}, 2: {}})


def test_entrypoint_decides_the_context(launch: Launch, kind: str) -> None:
    context = launch("")
    assert isinstance(context, SubprocessContext if kind == "command" else MultiprocessContext)
    assert not ended(context).is_failed()


def test_environment_is_added_to_ours_and_the_session_is_its_own(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    look = "import os; e = os.environ; assert (e['INHERITED'], e['RANK']) == ('yes', '{}'); "
    look += "assert os.getsid(0) == os.getpid()"
    assert ended(launch(look.format(0), look.format(1))).failures == {}


def test_workers_may_have_children(launch: Launch) -> None:
    program = (
        "import multiprocessing as m; p = m.get_context('spawn').Process(target=print); p.start(); p.join(); "
    )
    assert ended(launch(program + "assert p.exitcode == 0")).failures == {}


def test_attributes(launch: Launch) -> None:
    context = launch("", "")
    names = {
        "name",
        "entrypoint",
        "args",
        "envs",
        "nprocs",
        "stdouts",
        "stderrs",
        "error_files",
        "is_started",
    }
    assert [name for name in names if not hasattr(context, name)] == []
    assert (context.name, context.nprocs, context.is_started) == ("trainer", 2, True)


def test_pids_are_by_local_rank(launch: Launch) -> None:
    context = launch(SLEEP, SLEEP)
    pids = eventually(context.pids)
    assert sorted(pids) == [0, 1]
    assert all(os.getsid(pid) == pid for pid in pids.values())


def test_wait_of_0_looks_once(launch: Launch) -> None:
    assert launch(SLEEP).wait(0) is None


def test_all_or_nothing(launch: Launch) -> None:
    result = ended(launch(SLEEP, "import sys; sys.exit(5)", SLEEP))
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == {1: 5}
    assert sorted(result.victims) == [0, 2]
    assert (result.state, result.is_failed()) == ("FAILED", True)


def test_result_of_a_success(launch: Launch, kind: str) -> None:
    result = ended(launch("value = 'a'", "value = 'b'"))
    expected = {0: None, 1: None} if kind == "command" else {0: "a", 1: "b"}
    assert (result.return_values, result.failures, result.state) == (expected, {}, "SUCCEEDED")
    assert not result.is_failed()


def test_close_asks_then_kills(launch: Launch, tmp_path: Path) -> None:
    ready = [tmp_path / "0", tmp_path / "1"]
    say = "import pathlib, signal, time; {} pathlib.Path({!r}).touch(); time.sleep(1000)"
    deaf = say.format("signal.signal(signal.SIGTERM, signal.SIG_IGN);", str(ready[0]))
    context = launch(deaf, say.format("", str(ready[1])))
    eventually(lambda: all(path.exists() for path in ready))
    context.close(timeout=0.5)
    result = context.poll()
    assert result is not None
    codes = {rank: victim.exitcode for rank, victim in result.victims.items()}
    assert codes == {0: -signal.SIGKILL, 1: -signal.SIGTERM}


@pytest.mark.parametrize(
    ("program", "exitcode"),
    [
        ("import sys; sys.exit(7)", 7),
        ("raise ValueError", 1),
        ("import os; os._exit(77)", 77),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)", -int(signal.SIGRTMIN) - 3),
    ],
)
def test_exit_codes_are_the_workers_own(launch: Launch, program: str, exitcode: int) -> None:
    assert ended(launch(program)).failures[0].exitcode == exitcode


def test_every_failed_rank_is_reported(launch: Launch) -> None:
    context = launch("import sys; sys.exit(3)", "import sys; sys.exit(4)")
    eventually(lambda: (result := context.poll()) is not None and len(result.failures) == 2)
    assert {rank: failure.exitcode for rank, failure in ended(context).failures.items()} == {0: 3, 1: 4}


def test_what_can_not_be_returned_is_a_failure_of_its_worker(launch: Launch, kind: str) -> None:
    result = ended(launch("value = 1", "value = lambda: None"))
    if kind == "command":
        assert result.failures == {}
    else:
        assert "can't be handed to the launcher" in result.failures[1].message


def test_what_can_not_be_started_leaves_nobody(start: Start, mark: str, living: Living) -> None:
    with pytest.raises(OSError, match="worker 0 can't be started: 'no-such-program'"):
        start_processes("n", "no-such-program", (mark,), {0: {}, 1: {}})
    for method in ("spawn", "fork"):
        with pytest.raises(pickle.PicklingError, match="worker 1 can't be handed"):
            start((mark,), (lambda: None,), function=functions.sleep_in_children, start_method=method)
    assert living() == []


def test_signal_exception() -> None:
    error = SignalException("told to", sigval=signal.SIGTERM)
    assert (str(error), error.sigval) == ("told to", signal.SIGTERM)


# -- redirection, tee, log layout ----------------------------------------------------------------------


def test_std_has_four_values_and_ranks_of_any_length() -> None:
    assert [int(std) for std in (Std.NONE, Std.OUT, Std.ERR, Std.ALL)] == [0, 1, 2, 3]
    assert Std.from_str("0:1,12:3") == {0: Std.OUT, 12: Std.ALL}
    with pytest.raises(ValueError, match="names no streams"):
        Std.from_str("4")


def test_log_layout(launch: Launch, tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(tmp_path, redirects=Std.ALL)
    result = ended(launch("print('o'); raise ValueError('e')", logs=logs))
    folder = tmp_path / "job" / "round_0" / "0"
    assert result.stdouts == {0: str(folder / "stdout.log")}
    assert (folder / "stdout.log").read_text() == "o\n"
    assert (folder / "stderr.log").read_text().endswith("ValueError: e\n")
    assert result.failures[0].error_file in (NOBODY, str(folder / "error.json"))


@pytest.mark.parametrize("streams", [Std.ALL, Redirects.from_default(Std.ALL), {0: Std.ALL}])
def test_logs_may_be_described_without_specs(tmp_path: Path, streams: Streams) -> None:
    context = start_processes("n", "echo", ("out",), {0: {}}, log_dir=tmp_path, redirects=streams)
    assert Path(ended(context).stdouts[0]).read_text() == "out\n"
    with pytest.raises(ValueError, match="logs_specs and log_dir, redirects set the same thing"):
        start_processes("n", "true", (), {0: {}}, DefaultLogsSpecs(), log_dir=tmp_path, redirects=streams)


def test_log_dir_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        DefaultLogsSpecs(tmp_path / "file")


def test_log_dir_devnull_means_no_logs_and_no_error_file(launch: Launch, capfd: Captured) -> None:
    logs = DefaultLogsSpecs(os.devnull, redirects=Std.OUT)
    result = ended(launch("print('lost'); raise ValueError", logs=logs))
    assert result.failures[0].error_file == NOBODY
    assert capfd.readouterr().out == ""


def test_each_start_keeps_the_logs_of_the_last(launch: Launch, tmp_path: Path) -> None:
    """Two attempts with different errors: each has its own log and its own report."""
    logs = DefaultLogsSpecs(tmp_path, redirects=Std.ALL)
    program = (
        "import sys; from elastic.multiprocessing import record\n@record\ndef main():\n    raise {}\nmain()"
    )
    first = ended(launch(program.format("ValueError('first')"), logs=logs)).failures[0]
    second = ended(launch(program.format("KeyError('second')"), logs=logs)).failures[0]
    assert (first.message, second.message) == ("ValueError: first", "KeyError: 'second'")
    assert first.stderr_tail[-1] == "ValueError: first"
    assert second.stderr_tail[-1] == "KeyError: 'second'"
    assert len({first.error_file, second.error_file}) == 2
    assert "first" in Path(first.error_file).read_text()


def test_relative_log_dir_survives_a_chdir(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = DefaultLogsSpecs("relative", redirects=Std.OUT)
    program = (
        "import os; os.chdir('/'); assert os.path.isabs(os.environ['TORCHELASTIC_ERROR_FILE']); print('here')"
    )
    assert Path(ended(launch(program, logs=logs)).stdouts[0]).read_text() == "here\n"


def test_tee_has_the_default_prefix(launch: Launch, capfd: Captured, tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(tmp_path, tee=Std.ALL)
    program = "import sys; print('out'); print('err', file=sys.stderr)"
    result = ended(launch(program, program, logs=logs))
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == ["[trainer0]:out", "[trainer1]:out"]
    assert sorted(shown.err.splitlines()) == ["[trainer0]:err", "[trainer1]:err"]
    assert Path(result.stdouts[1]).read_text() == "out\n"


def test_tee_has_given_prefixes(launch: Launch, capfd: Captured, tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(tmp_path, tee=Std.OUT)
    ended(launch("print('a')", "print('b')", logs=logs, log_line_prefixes={0: "<zero> ", 1: ""}))
    assert sorted(capfd.readouterr().out.splitlines()) == ["<zero> a", "b"]


def test_partial_lines_are_not_torn(launch: Launch, capfd: Captured, tmp_path: Path) -> None:
    """``abc`` and ``def``, written apart, come out as one line, whatever the other worker writes."""
    program = "import os\nfor i in range(200): os.write(1, b'abc'); os.write(1, b'def\\n')"
    ended(launch(program, program, logs=DefaultLogsSpecs(tmp_path, tee=Std.OUT)))
    lines = capfd.readouterr().out.splitlines()
    assert {line: lines.count(line) for line in set(lines)} == {
        f"[trainer{rank}]:abcdef": 200 for rank in (0, 1)
    }


def test_last_words_are_complete(launch: Launch, tmp_path: Path) -> None:
    """A megabyte, and then a crash at once."""
    logs = DefaultLogsSpecs(tmp_path, tee=Std.OUT)
    program = (
        "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); data = b'x' * 999 + b'\\n'\n"
    )
    program += (
        "os.fdopen(os.dup(1), 'wb', 0)\nfor i in range(1000): assert os.write(1, data) == 1000\nos.abort()"
    )
    result = ended(launch(program, logs=logs))
    assert result.failures[0].signal_name() == "SIGABRT"
    assert Path(result.stdouts[0]).stat().st_size == 1_000_000


def test_local_ranks_filter(launch: Launch, capfd: Captured, tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(tmp_path, tee={0: Std.OUT, 1: Std.OUT}, local_ranks_filter={1})
    result = ended(launch("print('a')", "print('b')", "print('c')", logs=logs))
    assert capfd.readouterr().out == "[trainer1]:b\n"
    assert Path(result.stdouts[0]).read_text() == "a\n"
    assert result.stdouts[2] == os.devnull


def test_duplicate_filters(launch: Launch, tmp_path: Path) -> None:
    context = launch(
        "print('loss 1'); print('noise')",
        "print('loss 2')",
        logs=DefaultLogsSpecs(tmp_path, tee=Std.OUT),
        duplicate_stdout_filters=["loss"],
    )
    ended(context)
    (collected,) = tmp_path.rglob("filtered_stdout.log")
    assert sorted(collected.read_text().splitlines()) == ["[trainer0]:loss 1", "[trainer1]:loss 2"]


def test_redirects_are_at_the_level_of_descriptors(launch: Launch, tmp_path: Path, capfd: Captured) -> None:
    program = (
        "import os; print('python', flush=True); os.system('echo shell'); os.write(1, b'system call\\n')"
    )
    result = ended(launch(program, logs=DefaultLogsSpecs(tmp_path, redirects=Std.OUT)))
    assert Path(result.stdouts[0]).read_text() == "python\nshell\nsystem call\n"
    assert capfd.readouterr().out == ""


# -- failures ------------------------------------------------------------------------------------------

RECORDED = "from elastic.multiprocessing import record\n@record\ndef main():\n    {}\nmain()"


def test_process_failure_fields(launch: Launch) -> None:
    context = launch(RECORDED.format("raise ValueError('told')"))
    failure = ended(context).failures[0]
    assert (failure.local_rank, failure.exitcode, failure.message) == (0, 1, "ValueError: told")
    assert failure.exit_code == failure.exitcode
    assert failure.pid > 0
    assert failure.error_file == context.error_files[0]
    assert failure.error_file_data["message"]["extraInfo"]["py_callstack"] == failure.traceback
    assert failure.timestamp > 1_500_000_000
    assert (failure.signal_name(), failure.timestamp_isoformat()[4]) == (NOBODY, "-")


def test_no_error_file(launch: Launch) -> None:
    failure = ended(launch("import os; os._exit(9)")).failures[0]
    assert (failure.error_file_data, failure.message) == ({}, "Exit code 9, and no traceback was recorded")
    assert failure.timestamp > 1_500_000_000
    failure = ended(launch("import os; os.kill(os.getpid(), 15)")).failures[0]
    assert failure.message == f"Signal 15 (SIGTERM) received by PID {failure.pid}"
    assert ProcessFailure(0, 1, 1, message="given").message == "given"


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_corrupt_error_file(launch: Launch, content: str) -> None:
    program = f"import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({content!r}); os._exit(6)"
    assert ended(launch(program)).failures[0].exitcode == 6


def test_child_failed_error_and_its_report(launch: Launch) -> None:
    result = ended(launch(SLEEP, RECORDED.format("raise ValueError('the cause')")))
    error = ChildFailedError("train.py", result.victims | result.failures)
    rank, failure = error.get_first_failure()
    assert (rank, failure.message) == (1, "ValueError: the cause")
    text = str(error)
    assert all(words in text for words in ("train.py FAILED", "ValueError: the cause", "in main"))


def test_root_cause_is_the_first_observed_and_never_a_victim(launch: Launch, tmp_path: Path) -> None:
    mark = tmp_path / "first-has-ended"
    second = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)\nos._exit(2)"
    context = launch(second, "import os; os._exit(1)", SLEEP)
    eventually(lambda: (result := context.poll()) is not None and list(result.failures) == [1])
    mark.touch()
    eventually(lambda: (result := context.poll()) is not None and len(result.failures) == 2)
    result = ended(context)
    assert list(result.failures) == [1, 0]
    assert ChildFailedError("n", result.victims | result.failures).get_first_failure()[0] == 1


def test_failures_share_no_data(launch: Launch) -> None:
    result = ended(launch("import os; os._exit(1)"))
    result.failures[0].error_file_data["errorTraits"] = "mine"
    assert ended(launch("import os; os._exit(1)")).failures[0].error_file_data == {}


def test_error_file_schema(launch: Launch) -> None:
    context = launch(RECORDED.format("raise ValueError('told')"))
    ended(context)
    data = json.loads(Path(context.error_files[0]).read_text())
    assert data["message"]["message"] == "ValueError: told"
    assert int(data["message"]["extraInfo"]["timestamp"]) > 1_500_000_000
    assert "in main" in data["message"]["extraInfo"]["py_callstack"]
    assert [path.name for path in Path(context.error_files[0]).parent.iterdir()] == ["error.json"]


def test_an_exit_with_0_is_no_error(launch: Launch) -> None:
    context = launch(RECORDED.format("raise SystemExit(0)") + "\nimport os; os._exit(0)")
    assert ended(context).failures == {}
    assert not Path(context.error_files[0]).exists()


def test_other_exits_are_not_recorded(launch: Launch) -> None:
    context = launch(RECORDED.format("raise SystemExit(4)"))
    assert ended(context).failures[0].exitcode == 4
    assert not Path(context.error_files[0]).exists()


def test_the_error_of_an_inner_launcher_is_copied(launch: Launch, tmp_path: Path) -> None:
    inner = tmp_path / "inner.json"
    inner.write_text(json.dumps({"message": {"message": "ZeroDivisionError: deep inside", "extraInfo": {}}}))
    cause = f"ProcessFailure(0, 1, 1, error_file={str(inner)!r})"
    program = "from elastic.multiprocessing import ChildFailedError, ProcessFailure\n" + RECORDED.format(
        f"raise ChildFailedError('inner', {{0: {cause}}})"
    )
    assert ended(launch(program)).failures[0].message == "ZeroDivisionError: deep inside"


def test_record_prints_stacks_of_a_fatal_signal(launch: Launch) -> None:
    program = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    failure = ended(launch(program + RECORDED.format("os.kill(os.getpid(), 11)"))).failures[0]
    assert failure.signal_name() == "SIGSEGV"
    assert any("Fatal Python error: Segmentation fault" in line for line in failure.stderr_tail)


def test_record_without_a_launcher_writes_nothing(launch: Launch, tmp_path: Path) -> None:
    program = f"import os; os.chdir({str(tmp_path)!r}); del os.environ['TORCHELASTIC_ERROR_FILE']\n"
    logs = DefaultLogsSpecs(tmp_path / "logs")
    context = launch(program + RECORDED.format("raise ValueError"), logs=logs)
    assert ended(context).failures[0].error_file_data == {}
    assert list(tmp_path.glob("*.json")) == []
