"""Error files, failures and their report."""

import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from elastic.multiprocessing.errors import (
    ChildFailedError,
    ErrorHandler,
    ProcessFailure,
    exit_code_for,
    read_error_file,
    record,
)
from elastic.multiprocessing.errors.oom import oom_hint, oom_kills
from elastic.multiprocessing.signals import signal_name

TORCH = {
    "message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Trace", "timestamp": "1718000000"}}
}
TENSORPLAY = {"message": "ValueError('x')", "extraInfo": {"traceback": "Trace", "signal": None}}


@pytest.fixture
def error_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    return path


def failure(local_rank: int = 0, exitcode: int = 1, **fields: Any) -> ProcessFailure:
    return ProcessFailure(local_rank=local_rank, pid=997, exitcode=exitcode, **fields)


def test_torchs_shape_is_read(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_text(json.dumps(TORCH))
    found = read_error_file(path)
    assert found is not None
    assert (found.message, found.traceback, found.timestamp) == ("ValueError: x", "Trace", 1718000000)
    assert found.data == TORCH


def test_tensorplays_shape_is_read_and_dated_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_text(json.dumps(TENSORPLAY))
    found = read_error_file(path)
    assert found is not None
    assert (found.message, found.traceback) == ("ValueError('x')", "Trace")
    assert found.timestamp == int(path.stat().st_mtime)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"message": {"mess', b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"a": 1}'],
)
def test_a_broken_file_is_the_same_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e"
    path.write_bytes(content)
    assert read_error_file(path) is None
    assert "Exit code 1" in failure(error_file=str(path)).message


@pytest.mark.parametrize(
    "content",
    [
        {"message": None},
        {"message": {"message": 3, "extraInfo": "?"}},
        {"message": {"extraInfo": {"timestamp": "soon"}}},
        {"message": "m", "extraInfo": {"timestamp": 1e400}},
        {"message": "m", "timestamp": [1]},
    ],
)
def test_odd_content_is_read_as_far_as_possible(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "e"
    path.write_text(json.dumps(content))
    found = read_error_file(path)
    assert found is not None
    assert found.timestamp == int(path.stat().st_mtime)


def test_a_failure_reads_its_file_but_what_is_given_wins(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_text(json.dumps(TORCH))
    assert failure(error_file=str(path)).message == "ValueError: x"
    assert failure(error_file=str(path)).timestamp == 1718000000
    assert failure(error_file=str(path), message="mine").message == "mine"
    assert failure(message="mine").message == "mine"


def test_failures_share_no_data() -> None:
    failure().error_file_data["errorTraits"] = 1
    assert failure().error_file_data == {}


def test_a_failure_without_a_file_is_dated_now() -> None:
    before = int(time.time())
    assert before <= failure().timestamp <= time.time() + 1
    assert failure().error_file == "<N/A>"


@pytest.mark.parametrize(
    ("exitcode", "name", "code"),
    [
        (3, "<N/A>", 3),
        (255, "<N/A>", 255),
        (256, "<N/A>", 1),
        (-11, "SIGSEGV", 139),
        (-9, "SIGKILL", 137),
        (-34, "SIGRTMIN", 162),
        (-37, "SIGRTMIN+3", 165),
        (-64, "SIGRTMAX", 192),
        (-200, "signal 200", 1),
    ],
)
def test_signals_and_codes(exitcode: int, name: str, code: int) -> None:
    assert failure(exitcode=exitcode).signal_name() == name
    assert exit_code_for(failure(exitcode=exitcode)) == code


def test_every_signal_number_has_a_name() -> None:
    assert all(signal_name(number) for number in range(1, 200))


def test_the_root_cause_is_what_was_observed_first() -> None:
    error = ChildFailedError(
        "train",
        {
            # The clock of this one is wrong, and the third was stopped because of the second.
            0: failure(0, timestamp=5, observed=12.0),
            1: failure(1, timestamp=900, observed=11.0),
            2: failure(2, exitcode=-15, timestamp=1, observed=10.0, victim=True),
        },
    )
    assert error.get_first_failure()[0] == 1
    assert exit_code_for(error.get_first_failure()[1]) == 1


def test_timestamps_decide_where_nobody_observed() -> None:
    assert (
        ChildFailedError("t", {0: failure(0, timestamp=9), 1: failure(1, timestamp=3)}).get_first_failure()[0]
        == 1
    )


def test_the_report_says_it_all() -> None:
    error = ChildFailedError(
        "train.py",
        {
            4: failure(0, exitcode=-9, observed=2.0, stderr_tail=("last", "words"), host="node7"),
            5: failure(1, exitcode=3, observed=1.0, traceback="Traceback\n  boom\n", host="node8"),
            6: failure(2, exitcode=-15, observed=3.0, victim=True),
        },
    )
    text = str(error)
    order = [
        "train.py FAILED",
        "Root Cause",
        "node8",
        "rank      : 5 (local_rank: 1)",
        "exitcode  : 3",
        "boom",
    ]
    order += [
        "Other Failures",
        "node7",
        "rank      : 4",
        "SIGKILL",
        "words",
        "Stopped because of it: rank 6 (SIGTERM)",
    ]
    positions = [text.index(part) for part in order]
    assert positions == sorted(positions)


def test_an_error_survives_a_pickle_and_needs_a_failure() -> None:
    error = ChildFailedError("t", {0: failure(0, exitcode=7)})
    copy = pickle.loads(pickle.dumps(error))
    assert copy.failures == error.failures
    assert str(copy) == str(error)
    with pytest.raises(ValueError, match="at least one failure"):
        ChildFailedError("t", {})


def test_record_writes_what_leaves_the_function(error_file: Path) -> None:
    @record
    def main() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError):
        main()
    found = read_error_file(error_file)
    assert found is not None
    assert found.message == "KeyError: 'lost'"
    assert "in main" in found.traceback
    assert "record.py" not in found.traceback  # our own frames are of no use to anybody
    assert abs(found.timestamp - time.time()) < 60
    assert [path.name for path in error_file.parent.iterdir()] == ["error.json"]


def test_a_later_error_replaces_an_earlier_one(error_file: Path) -> None:
    for text in ("first", "second"):
        ErrorHandler().record_exception(RuntimeError(text))
    found = read_error_file(error_file)
    assert found is not None
    assert found.message == "RuntimeError: second"


@pytest.mark.parametrize("code", [None, 0])
def test_a_good_exit_is_no_error(error_file: Path, code: int | None) -> None:
    @record
    def main() -> int:
        raise SystemExit(code)

    assert main() is None
    assert not error_file.exists()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_other_exits_pass_unrecorded(error_file: Path, error: BaseException) -> None:
    @record
    def main() -> None:
        raise error

    with pytest.raises(type(error)):
        main()
    assert not error_file.exists()


def test_the_root_cause_reaches_the_outer_launcher(error_file: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.write_text(json.dumps(TORCH))

    @record
    def main() -> None:
        raise ChildFailedError("t", {0: failure(0, exitcode=7, error_file=str(inner), observed=1.0)})

    with pytest.raises(ChildFailedError):
        main()
    data = json.loads(error_file.read_text())
    assert data["message"]["message"] == "ValueError: x"
    assert data["message"]["errorCode"] == 7


def test_record_works_without_a_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)

    @record(error_file=tmp_path / "mine.json")
    def named() -> None:
        raise RuntimeError("named")

    @record()
    def unnamed() -> None:
        raise RuntimeError("unnamed")

    for function in (named, unnamed):
        with pytest.raises(RuntimeError, match=function.__name__):
            function()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    with pytest.raises(ValueError, match="not both"):
        record(named, ErrorHandler(), error_file="x")


def test_trouble_with_the_file_does_not_hide_the_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "/proc/nowhere/error.json")

    @record
    def main() -> None:
        raise RuntimeError("the user's")

    with pytest.raises(RuntimeError, match="the user's"):
        main()
    assert "can't be written" in caplog.text


def test_an_error_file_that_was_never_written_is_none(tmp_path: Path) -> None:
    assert failure(error_file=str(tmp_path / "never")).error_file == "<N/A>"
    broken = tmp_path / "broken"
    broken.write_text("{")
    assert failure(error_file=str(broken)).error_file == str(broken)
    assert failure(error_file="/not/here", host="b").error_file == "/not/here"


@pytest.mark.parametrize(
    ("stderr", "found"),
    [
        ((), ""),
        (("all is well", "bye"), ""),
        (("Traceback (most recent call last):", "  File", "ValueError: x", "later words"), "ValueError: x"),
        (("Traceback (most recent call last):", "  File", "my.Trouble", ""), "my.Trouble"),
        (("  File", "SyntaxError: invalid syntax"), "SyntaxError: invalid syntax"),
        (("OSError: first", "KeyError: 2"), "KeyError: 2"),
        (("[rank1]: Traceback (most recent call last):", "[rank1]:   File", "[rank1]: a.B: c"), "a.B: c"),
        (("[rank1]: RuntimeError: [gloo] closed by peer",), "RuntimeError: [gloo] closed by peer"),
        (
            (
                "  + Exception Group Traceback (most recent call last):",
                "  | ExceptionGroup: two (2 sub-exceptions)",
                "  +-+---------------- 1 ----------------",
                "    | KeyError: 'b'",
                "    +-----",
            ),
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
        (("an Error: in prose",), ""),
        (("Traceback (most recent call last):",), ""),
    ],
)
def test_an_exception_is_found_in_stderr(stderr: tuple[str, ...], found: str) -> None:
    assert failure(stderr_tail=stderr).exception() == found


def test_a_recorded_exception_comes_before_stderr(tmp_path: Path) -> None:
    path = tmp_path / "e"
    path.write_text(json.dumps(TORCH))
    assert failure(error_file=str(path), stderr_tail=("KeyError: 2",)).exception() == "ValueError: x"


def test_a_report_shows_hint_and_log_and_ends_in_one_sentence() -> None:
    error = ChildFailedError(
        "x", {3: failure(exitcode=-9, hint="out of memory", log="/l", stderr_tail=("a",))}
    )
    assert "hint      : out of memory" in str(error)
    assert "log       : /l" in str(error)
    assert error.summary() == "worker 3 failed: Signal 9 (SIGKILL) received by PID 997"


def cgroup(root: Path, kills: str) -> Path:
    group = root / "job"
    group.mkdir(exist_ok=True)
    (group / "memory.events").write_text(f"low 0\noom 3\n{kills}\noom_group_kill 0\n")
    groups = root / "groups"
    groups.write_text("1:name=systemd:/x\n0::/job\n")
    return groups


def test_oom_kills_are_read_from_the_cgroup(tmp_path: Path) -> None:
    groups = cgroup(tmp_path, "oom_kill 2")
    assert oom_kills(groups, tmp_path) == 2
    assert oom_kills(cgroup(tmp_path, "oom_kill many"), tmp_path) is None
    assert oom_kills(cgroup(tmp_path, ""), tmp_path) is None
    assert oom_kills(tmp_path / "missing", tmp_path) is None
    groups.write_text("4:memory:/x\n")
    assert oom_kills(groups, tmp_path) is None


@pytest.mark.parametrize(
    ("exitcode", "before", "now", "word"),
    [
        (-9, 0, 1, "OOM killer ended"),
        (-9, 1, 1, "not by the kernel"),
        (-9, None, 1, "dmesg"),
        (-9, 0, None, "dmesg"),
    ],
)
def test_a_kill_from_outside_has_a_hint(
    exitcode: int, before: int | None, now: int | None, word: str
) -> None:
    assert word in oom_hint(exitcode, before=before, now=now)


@pytest.mark.parametrize("exitcode", [-11, -15, 1, 137])
def test_other_ends_have_none(exitcode: int) -> None:
    assert oom_hint(exitcode, before=0, now=1) == ""
