"""The frames of a TCPStore: what is written is read, and nothing else is."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.store.messages import (
    LENGTH,
    WRITES,
    Answer,
    Garbled,
    Op,
    Outcome,
    Request,
    answer_frame,
    framed,
    read_answer,
    read_request,
    request_frame,
    take_frame,
)

NUMBERS = st.integers(0, 2**63)
FIELDS = st.lists(st.binary(max_size=40), max_size=6).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    op = draw(st.sampled_from(Op))
    write = draw(st.integers(1, 2**60)) if op in WRITES else 0
    floor = draw(st.integers(0, write))
    return Request(draw(NUMBERS), op, draw(FIELDS), wait=draw(NUMBERS), write=write, floor=floor)


@given(request=requests())
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    buffer = bytearray(request_frame(request))
    body = take_frame(buffer, limit=1000)
    assert body is not None
    assert read_request(body) == request
    assert not buffer


@given(answer=st.builds(Answer, NUMBERS, st.sampled_from(Outcome), FIELDS))
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    assert read_answer(answer_frame(answer)[LENGTH:]) == answer


@given(body=st.binary(max_size=200))
def test_anything_is_read_or_garbled(body: bytes) -> None:
    for read in (read_request, read_answer):
        with contextlib.suppress(Garbled):
            read(body)


@given(request=requests(), data=st.data())
def test_a_cut_request_is_garbled(request: Request, data: st.DataObject) -> None:
    """Nowhere but between two fields, where it is another request."""
    body = request_frame(request)[LENGTH:]
    end = data.draw(st.integers(0, len(body) - 1))
    try:
        read = read_request(body[:end])
    except Garbled:
        return
    assert read.fields == request.fields[: len(read.fields)]
    assert len(read.fields) < len(request.fields)


@given(bodies=st.lists(st.binary(min_size=1, max_size=30), max_size=5), cut=st.integers(1, 7))
def test_frames_come_whole_however_they_arrive(bodies: list[bytes], cut: int) -> None:
    stream, buffer, taken = b"".join(map(framed, bodies)), bytearray(), []
    for start in range(0, len(stream), cut):
        buffer += stream[start : start + cut]
        while (body := take_frame(buffer, limit=30)) is not None:
            taken.append(body)
    assert taken == bodies


@pytest.mark.parametrize("head", [b"\x00\x00\x00\x00", b"\x00\x00\x00\x1f", b"GET ", b"\xff\xff\xff\xff"])
def test_a_length_is_not_believed(head: bytes) -> None:
    with pytest.raises(Garbled, match="where 1 to 30 are allowed"):
        take_frame(bytearray(head), limit=30)


def test_another_version_is_named() -> None:
    body = bytearray(request_frame(Request(1, Op.PING))[LENGTH:])
    body[0] = 9
    with pytest.raises(Garbled, match="version 9 of the protocol, and this one 1"):
        read_request(bytes(body))
