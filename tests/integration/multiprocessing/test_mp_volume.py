"""Much output: whole, in order, cheap, and in files of bounded size."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from mp_support import Start

from benchmarks import tee
from elastic.multiprocessing import DefaultLogsSpecs, RunProcsResult, Std

pytest_plugins = ("mp_fixtures",)

WORK = {"workers": 8, "lines": 10_000, "size": 500}


def test_eight_workers_are_shown_whole_in_order_and_cheaply(tmp_path: Path) -> None:
    """The benchmark's own work. Its ratio is bounded widely here: other tests use the machine, too."""
    for folder in ("teed", "piped"):
        (tmp_path / folder).mkdir()
    seconds = tee.tee(tmp_path / "teed", **WORK)
    assert tee.faults(tmp_path / "teed" / "shown", **WORK) == 0
    for rank in range(WORK["workers"]):
        (log,) = (tmp_path / "teed" / "logs").rglob(f"{rank}/stdout.log")
        assert log.stat().st_size == WORK["lines"] * WORK["size"]
    assert seconds < 5 * tee.cat(tmp_path / "piped", **WORK)


def test_the_benchmark_sees_a_fault(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.write_bytes(
        b"".join(b"[w0]:" + f"0 {number} ".ljust(19, "x").encode() + b"\n" for number in (0, 1, 2))
    )
    assert tee.faults(shown, workers=1, lines=3, size=20) == 0
    shown.write_bytes(shown.read_bytes().replace(b"0 1 x", b"0 1\nx", 1))
    assert tee.faults(shown, workers=1, lines=3, size=20) > 0


@pytest.fixture
def counted(start: Start, tmp_path: Path) -> object:
    """Runs two workers that count to 5000 on both streams and fail, with logs that are rotated."""

    def run(*, tee: Std = Std.NONE, redirects: Std = Std.NONE, keep: int) -> RunProcsResult:
        text = "import os, sys\nfor i in range(5000):\n    for fd in (1, 2): os.write(fd, b'%d\\n' % i)\n"
        command = f"{sys.executable} -c {shlex.quote(text + 'sys.exit(3)')}"
        logs = DefaultLogsSpecs(tmp_path / "logs", redirects=redirects, tee=tee, max_size=10_000, keep=keep)
        context = start(command, f"exec sleep 1000; {command}", logs=logs)
        result = context.wait(60)
        assert result is not None
        return result

    return run


COUNTED = "".join(f"{number}\n" for number in range(5000))


@pytest.mark.parametrize("streams", [{"tee": Std.ALL}, {"redirects": Std.ALL}])
def test_logs_are_rotated(
    counted: object, streams: dict[str, Std], capfd: pytest.CaptureFixture[str]
) -> None:
    assert callable(counted)
    result = counted(**streams, keep=100)
    for log in (Path(result.stdouts[0]), Path(result.stderrs[0])):
        parts = sorted(log.parent.glob(f"{log.name}.*"), key=lambda path: -int(path.suffix[1:]))
        assert len(parts) == 2
        assert max(part.stat().st_size for part in parts) <= 10_000
        assert "".join(part.read_text() for part in [*parts, log]) == COUNTED
    assert result.failures[0].stderr_tail[-1] == "4999"
    shown = "".join(f"[default0]:{number}\n" for number in range(5000)) if "tee" in streams else ""
    assert capfd.readouterr() == (shown, shown)


def test_the_oldest_logs_go(counted: object) -> None:
    assert callable(counted)
    result = counted(redirects=Std.OUT, keep=1)
    log = Path(result.stdouts[0])
    assert sorted(path.name for path in log.parent.glob("stdout*")) == ["stdout.log", "stdout.log.1"]
    assert COUNTED.endswith(log.with_name("stdout.log.1").read_text() + log.read_text())
