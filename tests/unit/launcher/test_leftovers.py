"""Directories of local etcds: removed when their owner is dead, and never before."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from elastic.launcher.leftovers import owned, sweep

_OWNER = """
import sys
from pathlib import Path
from elastic.launcher.leftovers import owned
with owned(Path(sys.argv[1])):
    print("owned", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = tmp_path / "elastic-etcd-x"
    (found / "data").mkdir(parents=True)
    return found


def test_what_a_killed_owner_left_is_removed_and_what_a_living_one_has_is_not(directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        assert sweep("elastic-etcd-") == []
        assert directory.exists()
        owner.kill()
    assert sweep("elastic-etcd-") == [directory]
    assert not directory.exists()


def test_a_directory_that_nobody_has_marked_is_let_alone(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "elastic-etcd-link").symlink_to(directory)
    (tmp_path / "elastic-etcd-file").touch()
    assert sweep("elastic-etcd-") == []
    with owned(directory):
        assert sweep("elastic-etcd-") == []
    assert directory.exists()
