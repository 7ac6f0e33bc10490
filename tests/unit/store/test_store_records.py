"""The file format of a FileStore: cut anywhere, it holds what was whole; changed anywhere, it says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.store import records

KEYS = st.binary(max_size=6)
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=20), min_size=1, max_size=4)


def after(history: list[dict[bytes, bytes | None]]) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for changes in history:
        values |= {key: value for key, value in changes.items() if value is not None}
        values = {key: value for key, value in values.items() if changes.get(key, b"") is not None}
    return values


@given(history=st.lists(CHANGES, max_size=6), data=st.data())
def test_a_log_that_is_cut_anywhere_holds_the_whole_records_before(
    history: list[dict[bytes, bytes | None]], data: st.DataObject
) -> None:
    written = [records.record(changes) for changes in history]
    log = b"".join(written)
    end = data.draw(st.integers(0, len(log)))
    values: dict[bytes, bytes] = {}
    taken = records.read(log[:end], values, offset=0)
    whole = 0
    while whole < len(written) and sum(map(len, written[: whole + 1])) <= end:
        whole += 1
    assert taken == sum(map(len, written[:whole]))
    assert values == after(history[:whole])


@given(history=st.lists(CHANGES, min_size=1, max_size=4), data=st.data())
def test_a_bit_that_flips_is_noticed(history: list[dict[bytes, bytes | None]], data: st.DataObject) -> None:
    log = bytearray(b"".join(map(records.record, history)))
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(records.Damaged, match="byte"):
        records.read(bytes(log), {}, offset=32)


def test_zeros_are_no_record() -> None:
    with pytest.raises(records.Damaged, match="no record at byte 32"):
        records.read(bytes(100), {}, offset=32)


@given(values=st.dictionaries(KEYS, st.binary(max_size=50), max_size=20), chunk=st.integers(1, 200))
def test_a_snapshot_holds_all_values(values: dict[bytes, bytes], chunk: int) -> None:
    found: dict[bytes, bytes] = {}
    log = b"".join(records.snapshot(values, chunk=chunk))
    assert records.read(log, found, offset=0) == len(log)
    assert found == values


def test_a_header_is_known() -> None:
    header = records.header(b"i" * records.INSTANCE)
    assert len(header) == records.HEADER
    assert records.instance_of(header) == b"i" * records.INSTANCE
    for end in range(records.HEADER):
        assert records.instance_of(header[:end]) is None
    with pytest.raises(records.Damaged, match="does not begin"):
        records.instance_of(b"\x80\x04pickle of something, or whatever it is")
