"""The command of a worker, and whether what it names is there."""

import os
import sys
from pathlib import Path

import pytest

from elastic.launcher.arguments import parse
from elastic.launcher.entrypoint import worker_command
from elastic.launcher.errors import UsageError
from elastic.launcher.lookup import check_script, loopback_hosts, make_log_dir, python_program


def command(*argv: str) -> tuple[str, ...]:
    return worker_command(parse(argv, {}), python="py")


def test_a_script_is_run_by_python_without_buffers() -> None:
    assert command("train.py", "--lr", "1") == ("py", "-u", "train.py", "--lr", "1")


def test_a_module() -> None:
    assert command("-m", "pkg.train", "-m") == ("py", "-u", "-m", "pkg.train", "-m")


def test_a_program() -> None:
    assert command("--no-python", "echo", "-n") == ("echo", "-n")


def test_a_path_for_runpy_ends_with_the_script_and_its_arguments() -> None:
    assert command("--run-path", "train.py", "a")[-2:] == ("train.py", "a")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train"
    path.write_text("")
    return path


def test_a_script_that_is_there_passes(script: Path) -> None:
    check_script(parse([str(script)], {}), {})


def test_a_directory_passes_as_python_can_run_it(tmp_path: Path) -> None:
    check_script(parse([str(tmp_path)], {}), {})


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.py does not exist"):
        check_script(parse([str(tmp_path / "nothing.py")], {}), {})


def test_a_module_is_left_to_the_worker() -> None:
    check_script(parse(["-m", "no.such.module"], {}), {})


def test_a_program_is_looked_up_in_path(script: Path) -> None:
    environ = {"PATH": str(script.parent)}
    options = parse(["--no-python", script.name], {})
    with pytest.raises(UsageError, match="no program train in PATH"):
        check_script(options, environ)
    script.chmod(0o755)
    check_script(options, environ)


def test_a_program_that_cannot_be_run_is_told_apart(script: Path) -> None:
    with pytest.raises(UsageError, match="make it executable"):
        check_script(parse(["--no-python", str(script)], {}), {})


def test_the_interpreter_is_this_one_or_the_one_that_the_user_names() -> None:
    assert python_program({}) == sys.executable
    assert python_program({"PYTHON_EXEC": sys.executable}) == sys.executable
    with pytest.raises(UsageError, match="PYTHON_EXEC=/no/python"):
        python_program({"PYTHON_EXEC": "/no/python"})


def test_a_log_directory_may_be_there_and_is_made_where_it_is_not(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "a" / "b"):
        make_log_dir(str(directory))
        assert directory.is_dir()
    make_log_dir("/dev/null")


def test_a_log_directory_that_cannot_be_made_is_refused() -> None:
    # The kernel makes no directory there for anybody, root or not.
    with pytest.raises(UsageError, match="/proc/logs/mine cannot be"):
        make_log_dir("/proc/logs/mine")


def test_a_log_directory_below_a_file_is_refused(script: Path) -> None:
    for directory in (script, script / "logs"):
        with pytest.raises(UsageError, match="train is a file"):
            make_log_dir(str(directory))


def test_a_log_directory_that_is_read_only_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The system's answer: root, who runs some of these tests, is refused only by a read-only file system.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="not ours"):
        make_log_dir(str(tmp_path / "logs"))


def test_loopback_is_seen_in_names_and_addresses() -> None:
    hosts = ["localhost", "127.3.2.1", "::1", "192.0.2.1", "2001:db8::1", "no-such-host.invalid"]
    for serves_names in (False, True):
        assert loopback_hosts(hosts, serves_names=serves_names) == ["localhost", "127.3.2.1", "::1"]
