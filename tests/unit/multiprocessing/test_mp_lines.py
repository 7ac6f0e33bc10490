"""A stream cut into lines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.multiprocessing.lines import LineAssembler
from elastic.multiprocessing.tail import TAIL_LINES, last_lines, read_last_lines

PROFILE = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def cut(*pieces: bytes) -> list[bytes]:
    assembler = LineAssembler()
    lines = [line for piece in pieces for line in assembler.feed(piece)]
    rest = assembler.flush()
    return lines if rest is None else [*lines, rest]


@PROFILE
@given(st.lists(st.binary(max_size=40)))
def test_pieces_make_no_difference(pieces: list[bytes]) -> None:
    # Updates shown on the way aside, the lines are those of the whole.
    assert cut(*pieces) == cut(b"".join(pieces))


@PROFILE
@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b""))))
def test_lines_without_updates_come_out_as_they_went_in(lines: list[bytes]) -> None:
    assert cut(b"".join(line + b"\n" for line in lines)) == lines


@PROFILE
@given(st.lists(st.text("ab\r\n", max_size=8).map(str.encode)))
def test_a_block_holds_the_same_lines(pieces: list[bytes]) -> None:
    plain, prefixed = LineAssembler(), LineAssembler()
    for piece in pieces:
        lines = plain.feed(piece)
        assert b"".join(prefixed.feed_block(piece, b"> ")) == b"".join(b"> " + line + b"\n" for line in lines)
        assert prefixed.take_update() == plain.take_update()
    assert prefixed.flush() == plain.flush()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"10%\r20%\r30%\n", [b"30%"]),
        (b"\r10%\r20%", [b"20%"]),
        (b"10%\r20%\r", [b"20%"]),
        (b"a\0b\n\xff\xfe\n", [b"a\0b", b"\xff\xfe"]),
        (b"\n\n", [b"", b""]),
        (b"no end", [b"no end"]),
        (b"", []),
    ],
)
def test_line_ends(data: bytes, expected: list[bytes]) -> None:
    assert cut(data) == expected
    assert cut(*(bytes([byte]) for byte in data)) == expected


def test_an_update_can_be_taken_once() -> None:
    assembler = LineAssembler()
    assembler.feed(b"\r10%")
    assert assembler.take_update() == b"10%"
    assert assembler.take_update() is None
    assembler.feed(b"\r20%")
    assert assembler.take_update() == b"20%"
    assert assembler.flush() is None  # it was shown already
    assembler.feed(b"plain")
    assert assembler.take_update() is None


def test_ten_megabytes_are_one_line() -> None:
    piece = b"x" * 65536
    assembler = LineAssembler()
    assert all(assembler.feed(piece) == [] for _ in range(160))
    assert assembler.feed(b"\n") == [piece * 160]


def test_a_stream_without_newlines_does_not_fill_memory() -> None:
    assembler = LineAssembler(limit=10)
    assert assembler.feed(b"x" * 25) == [b"x" * 10, b"x" * 10]
    assert assembler.flush() == b"x" * 5
    # Progress bars have no newline either, and are not cut.
    updates = LineAssembler(limit=20)
    assert all(updates.feed(b"\r%5d" % number) == [] for number in range(1000))
    assert updates.flush() == b"  999"


def test_the_tail_is_the_last_lines() -> None:
    data = b"".join(b"line %d\n" % number for number in range(10_000))
    assert last_lines(data)[-1] == "line 9999"
    assert len(last_lines(data)) == TAIL_LINES
    assert last_lines(b"half\nwhole\n", is_cut=True) == ("whole",)
    assert last_lines(b"bad \xff\0 byte\n\n\n") == ("bad � byte",)
    assert last_lines(b"") == ()
    assert read_last_lines("/does/not/exist") == ()
