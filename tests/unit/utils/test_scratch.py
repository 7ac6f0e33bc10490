"""Temporary directories: removed when their owner is dead, and never before."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from elastic.utils.scratch import Scratch, sweep

_OWNER = """
import sys
from elastic.utils.scratch import Scratch
scratch = Scratch("test")
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_what_a_killed_owner_left_is_removed_and_what_a_living_one_has_is_not(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        directory = Path(owner.stdout.readline().strip())
        (directory / "data").mkdir()
        assert directory.parent == place
        assert sweep() == []
        assert directory.exists()
        owner.kill()
    assert sweep() == [directory]
    assert not directory.exists()


def test_its_own_are_gone_when_it_closes_them(place: Path) -> None:
    scratch = Scratch("test")
    (scratch.path / "file").touch()
    assert sweep() == []
    scratch.close()
    scratch.close()
    assert list(place.iterdir()) == []


def test_a_directory_that_nobody_has_marked_is_let_alone(place: Path) -> None:
    directory = place / "elastic-x"
    directory.mkdir()
    (place / "elastic-link").symlink_to(directory)
    (place / "elastic-file").touch()
    assert sweep() == []
    assert directory.exists()
