"""Logs that are replaced by fresh ones as they grow."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.multiprocessing.log_file import LogFile, Rotation

PROFILE = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def write(path: Path, pieces: list[bytes], rotation: Rotation | None) -> None:
    log = LogFile(str(path), rotation)
    for piece in pieces:
        log.write(piece)
    log.close()


def contents(path: Path) -> list[bytes]:
    """The oldest first."""
    old = sorted(path.parent.glob(f"{path.name}.*"), key=lambda file: -int(file.suffix[1:]))
    return [file.read_bytes() for file in [*old, path]]


@PROFILE
@given(lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))), sizes=st.data())
def test_nothing_is_lost_and_no_short_line_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], sizes: st.DataObject
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    pieces = []
    while data:
        cut = sizes.draw(st.integers(1, 80))
        pieces.append(data[:cut])
        data = data[cut:]
    path = tmp_path_factory.mktemp("log") / "out.log"
    write(path, pieces, Rotation(max_bytes=40, keep=1000))
    files = contents(path)
    assert b"".join(files) == b"".join(pieces)
    assert all(len(file) <= 80 for file in files)
    assert all(file.endswith(b"\n") for file in files if file)


def test_a_line_that_does_not_end_is_cut(tmp_path: Path) -> None:
    write(tmp_path / "log", [b"x" * 7] * 10, Rotation(max_bytes=10, keep=9))
    assert b"".join(contents(tmp_path / "log")) == b"x" * 70
    assert max(map(len, contents(tmp_path / "log"))) <= 20


def test_the_newest_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "log", [b"%d\n" % number for number in range(10)], Rotation(max_bytes=4, keep=2))
    assert contents(tmp_path / "log") == [b"4\n5\n", b"6\n7\n", b"8\n9\n"]


def test_without_rotation_one_file_has_it_all(tmp_path: Path) -> None:
    write(tmp_path / "log", [b"a\n" * 10_000], None)
    write(tmp_path / "log", [b"b\n"], None)
    assert contents(tmp_path / "log") == [b"a\n" * 10_000 + b"b\n"]


@pytest.mark.parametrize(("size", "keep"), [(0, 5), (1, 0)])
def test_a_rotation_needs_room(size: int, keep: int) -> None:
    with pytest.raises(ValueError, match="give at least 1 for both"):
        Rotation(size, keep)
