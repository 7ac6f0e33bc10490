"""Workers that are functions."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from pathlib import Path

import mp_functions as functions
import pytest
from mp_support import ENVIRONMENT, Living, Start, eventually

from elastic.multiprocessing import DefaultLogsSpecs, Std

pytest_plugins = ("mp_fixtures",)


@pytest.fixture(params=["spawn", "fork"])
def start(start: Start, request: pytest.FixtureRequest) -> Start:
    """As elsewhere, with each way of starting a function. ``forkserver`` is ``fork`` by another name."""
    return functools.partial(start, start_method=request.param)


def test_values_come_back(start: Start, tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(tmp_path, redirects=Std.ALL)
    context = start((6, 7), ("ab", 2), function=functions.multiply, logs=logs)
    result = context.wait(60)
    assert result is not None
    assert result.return_values == {0: 42, 1: "abab"}
    assert Path(result.stdouts[1]).read_text().split() == ["to", "stdout", "from", "a", "shell"]
    assert Path(result.stderrs[1]).read_text() == "to stderr\n"


def test_large_values_do_not_block(start: Start) -> None:
    result = start((b"x", 50_000_000), (b"y" * 50_000_000, 1), function=functions.multiply).wait(60)
    assert result is not None
    assert result.return_values == {0: b"x" * 50_000_000, 1: b"y" * 50_000_000}


def test_the_environment_is_each_workers_own(start: Start) -> None:
    result = start(("MINE",), function=functions.environment, env={"MINE": "yes"}).wait(60)
    assert result is not None
    assert result.return_values == {0: "yes"}


def test_an_exception_is_recorded(start: Start) -> None:
    result = start(("bad luck",), function=functions.fail).wait(60)
    assert result is not None
    failure = result.failures[0]
    assert (failure.exitcode, failure.message) == (1, "ValueError: bad luck")
    assert "in fail" in failure.traceback
    assert failure.stderr_tail[-1] == "ValueError: bad luck"


@pytest.mark.parametrize(("code", "exitcodes"), [(7, [7]), (0, [])])
def test_an_exit_keeps_its_code(start: Start, code: int, exitcodes: list[int]) -> None:
    result = start((code,), function=functions.leave).wait(60)
    assert result is not None
    assert [failure.exitcode for failure in result.failures.values()] == exitcodes


def test_sudden_ends(start: Start) -> None:
    result = start((), function=functions.leave_at_once).wait(60)
    assert result is not None
    assert result.return_values == {0: None}
    result = start((), function=functions.die).wait(60)
    assert result is not None
    assert result.failures[0].signal_name() == "SIGKILL"


def test_what_can_not_be_handed_over_is_named(start: Start) -> None:
    with pytest.raises(pickle.PicklingError, match="for worker 1 can't be handed to another process"):
        start((1, 2), (1, lambda: None), function=functions.multiply)
    with pytest.raises(pickle.PicklingError, match=r"lambda.*top level of a module"):
        start((), function=lambda: None)


def test_what_can_not_be_handed_back_is_named(start: Start) -> None:
    result = start((), function=functions.return_lambda).wait(60)
    assert result is not None
    assert (
        "the return value of return_lambda, of type function, can't be handed" in result.failures[0].message
    )
    result = start((), function=functions.return_unreadable, env={"IS_WORKER": "1"}).wait(60)
    assert result is not None
    assert "the return value of worker 0 can't be read here: OSError" in result.failures[0].message
    assert result.failures[0].exitcode == 1


def test_a_start_method_that_is_none_is_refused(start: Start) -> None:
    with pytest.raises(ValueError, match="'clone' is unknown: use one of spawn, fork, forkserver"):
        start((1, 2), function=functions.multiply, start_method="clone")


def test_nothing_is_inherited(start: Start) -> None:
    result = start((), (), function=functions.inherit).wait(60)
    assert result is not None
    for open_files, stdin in result.return_values.values():
        assert [name for name in open_files if "elastic-result" not in name] == []
        assert stdin == ""


def test_children_of_functions_are_ended(start: Start, mark: str, living: Living) -> None:
    context = start((mark,), function=functions.sleep_in_children)
    eventually(living)
    context.close()
    assert living() == []


def test_a_script_defines_its_own_functions(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from elastic.multiprocessing import start_processes\n"
        "def double(n): return 2 * n\n"
        "if __name__ == '__main__':\n"
        "    print(start_processes('d', double, {0: (21,)}, {0: {}}).wait().return_values)\n"
    )
    command = [sys.executable, str(script)]
    root = ENVIRONMENT
    run = subprocess.run(command, env=root, capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.stderr) == ("{0: 42}\n", "")
    script.write_text(script.read_text().replace("if __name__ == '__main__':", "if True:"))
    run = subprocess.run(command, env=root, capture_output=True, text=True, timeout=60, check=False)
    assert "put the start under if __name__ == '__main__':" in run.stderr


def test_a_function_of_a_session_can_not_be_imported() -> None:
    program = (
        "from elastic.multiprocessing import start_processes\n"
        "def double(n): return 2 * n\n"
        "start_processes('d', double, {0: (21,)}, {0: {}})\n"
    )
    for arguments, text in ((["-c", program], ""), (["-"], program)):
        run = subprocess.run(
            [sys.executable, *arguments],
            input=text,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "double is defined in a session that another process can't import: put it into" in run.stderr
