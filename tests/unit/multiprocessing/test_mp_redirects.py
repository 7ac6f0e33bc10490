"""Which stream goes where, as it is written on a command line."""

import pytest

from elastic.multiprocessing.redirects import Redirects, Std, to_map


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", Std.NONE),
        ("1", Std.OUT),
        ("2", Std.ERR),
        ("3", Std.ALL),
        ("0:3,1:0", {0: Std.ALL, 1: Std.NONE}),
        ("0:3, 10:1 ,127:2", {0: Std.ALL, 10: Std.OUT, 127: Std.ERR}),
    ],
)
def test_the_two_forms_are_parsed(text: str, expected: object) -> None:
    assert Std.from_str(text) == expected


@pytest.mark.parametrize(
    "text", ["", "4", "-1", "a", "0:4", "0:", ":3", "0:3,", "0:3:1", "-1:3", "1,2", "²:1"]
)
def test_other_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="write one digit") as caught:
        Std.from_str(text)
    assert repr(text) in str(caught.value)


def test_a_rank_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="local rank 3 twice"):
        Std.from_str("3:1,03:2")


def test_a_map_with_holes_is_filled_with_none() -> None:
    assert to_map({1: Std.OUT}, 3) == {0: Std.NONE, 1: Std.OUT, 2: Std.NONE}
    assert to_map(Std.ERR, 2) == {0: Std.ERR, 1: Std.ERR}


def test_redirects_unite_their_streams() -> None:
    assert Redirects.from_default(Std.ALL).streams(2) == {0: Std.ALL, 1: Std.ALL}
    assert Redirects.from_str("1:3,0:2").streams(3) == {0: Std.ERR, 1: Std.ALL, 2: Std.NONE}
    # What is given for the wrong stream has no effect.
    assert to_map(Redirects.from_str("1:3"), 2) == {0: Std.NONE, 1: Std.ALL}
    assert Redirects(stdouts=Std.ERR, stderrs=Std.OUT).streams(1) == {0: Std.NONE}


def test_what_names_no_streams_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'3' names no streams: give a Std"):
        to_map("3", 2)  # type: ignore[arg-type]
