"""Ranges of keys, and which transactions write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.etcd import ALL_KEYS, Delete, Get, KeyRange, Operation, Put, Txn, absent, key, prefix, value_is
from elastic.etcd.wire import read_only, txn_request


@pytest.mark.parametrize(
    ("name", "end"),
    [(b"a/", b"a0"), (b"a\xff", b"b"), (b"a\xff\xff", b"b"), (b"\xff", b"\0"), (b"\xff\xff", b"\0")],
)
def test_the_end_of_a_prefix(name: bytes, end: bytes) -> None:
    assert prefix(name) == KeyRange(name, end)


def test_the_empty_prefix_is_every_key_and_an_empty_key_is_refused() -> None:
    assert prefix(b"") == ALL_KEYS
    with pytest.raises(ValueError, match="ALL_KEYS"):
        key(b"")


# Few letters, the awkward ones among them, so that prefixes are hit and nearly hit.
names = st.lists(st.sampled_from([b"\0", b"a", b"b", b"\xfe", b"\xff"]), min_size=1, max_size=4).map(b"".join)


@given(names, names)
def test_a_prefix_holds_exactly_the_keys_that_begin_with_it(stem: bytes, name: bytes) -> None:
    assert (name in prefix(stem)) == name.startswith(stem)
    assert (name in key(stem)) == (name == stem)
    assert name in ALL_KEYS


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([], True),
        ([Get(b"a")], True),
        ([Get(b"a"), Put(b"a", b"")], False),
        ([Delete(b"a")], False),
        ([Txn((absent(b"a"),), (Get(b"b"),))], True),
        ([Txn((), (), (Txn((), (), (Put(b"a", b""),)),))], False),
    ],
)
def test_read_only(operations: list[Operation], expected: bool) -> None:
    assert read_only(operations) is expected


def test_a_compare_with_an_operand_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        txn_request(Txn((value_is(b"a", 1),), ()))  # type: ignore[arg-type]
