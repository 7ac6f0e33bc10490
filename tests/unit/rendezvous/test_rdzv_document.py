"""The document of a run: as etcd would keep the same records, told to observers, and strict when read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_etcd import FakeEtcd, LeaseGone
from support.strategies import node, world_of

from elastic.rendezvous import RendezvousStateError
from elastic.rendezvous.backends.document.codec import MOST_BYTES, decode, encode
from elastic.rendezvous.backends.document.document import (
    MOST_HISTORY,
    MOST_PAST,
    Document,
    KeyChange,
    Past,
    Refusal,
    Stored,
)
from elastic.rendezvous.codec import encode as encode_record
from elastic.rendezvous.core.actions import Absent, Commit, Delete, Guard, Keep, Put, SameCreation, Unchanged
from elastic.rendezvous.core.records import Leader, Record, Want
from elastic.rendezvous.core.view import LEADER, NODES, ROUND, history_key, node_key

PROFILE = settings(max_examples=150, deadline=None, derandomize=True, database=None)
EMPTY = Document(history="h")


def value_of(record: Record) -> Any:
    return json.loads(encode_record(record, written_at="now"))


def commit(*operations: Put | Delete, guards: tuple[Guard, ...] = (), claim: Put | None = None) -> Commit:
    return Commit(step="test", why="", guards=guards, operations=operations, claim=claim)


def put(key: str, record: Record, keep: Keep = Keep.RETENTION) -> Put:
    return Put(key, record, keep)


def after(document: Document, what: Commit, lease: str = "") -> Document:
    found = document.applied(what, lease=lease, value_of=value_of)
    assert isinstance(found, Document)
    return found


# -- as etcd -----------------------------------------------------------------------------------------

KEYS = (LEADER, ROUND, node_key("a"), node_key("b"))
LEASES = ("a/1", "b/1")


@st.composite
def guards_for(draw: st.DrawFn, document: Document) -> Guard:
    """One that holds, or nearly does."""
    key = draw(st.sampled_from(KEYS))
    stored = document.records.get(key)
    miss = draw(st.sampled_from([0, 0, 1]))
    kinds: list[Guard] = [
        Absent(key),
        Unchanged(key, miss + (0 if stored is None else stored.modified)),
        SameCreation(key, miss + (0 if stored is None else stored.created)),
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def commits(draw: st.DrawFn, document: Document) -> Commit:
    keys = st.sampled_from(KEYS)
    guards = draw(st.sampled_from([0, 1, 1]).flatmap(lambda n: st.tuples(*[guards_for(document)] * n)))
    keeps = st.sampled_from([Keep.NODE, Keep.NODE, Keep.RETENTION])
    records: dict[str, Record] = {LEADER: Leader(node_id="a"), ROUND: world_of("a")}
    records.update({node_key(i): node(i) for i in "ab"})
    operations: list[Put | Delete] = []
    for key in draw(st.lists(keys, unique=True, min_size=1, max_size=2)):
        record = records[key]
        operations.append(draw(st.sampled_from([Put(key, record, draw(keeps))] * 3 + [Delete(key)])))
    if draw(st.integers(0, 4)) == 0 and not any(o.key.startswith(NODES) for o in operations):
        operations.append(Delete(NODES))
    claim = Put(LEADER, Leader(node_id=draw(st.sampled_from("ab"))), Keep.NODE)
    claimed = draw(st.booleans()) and LEADER not in {o.key for o in operations}
    return commit(*operations, guards=guards, claim=claim if claimed else None)


@PROFILE
@given(st.data())
def test_it_keeps_records_as_etcd_does(data: st.DataObject) -> None:
    """Step by step: the same revisions, values, refusals and ends of leases, and each change is told."""
    etcd = FakeEtcd(written=lambda fact, why: None)
    document, observed = EMPTY, [EMPTY]
    ids = {lease: etcd.grant(0.0) for lease in LEASES}
    for lease in LEASES:
        document = document.granted(lease)
    for _ in range(data.draw(st.integers(4, 14))):
        lease = data.draw(st.sampled_from(LEASES))
        match data.draw(st.sampled_from(["grant", *["commit"] * 5, "revoke"])):
            case "grant":
                if lease not in document.leases:
                    ids[lease] = etcd.grant(0.0)
                document = document.granted(lease)
            case "revoke":
                etcd.revoke(ids.get(lease, -1))
                document = document.revoked(lease)
            case _:
                wanted = data.draw(commits(document))
                found = document.applied(wanted, lease=lease, value_of=value_of)
                try:
                    answer = etcd.commit(wanted, ids.get(lease, -1))
                except LeaseGone:
                    assert found is Refusal.LEASE
                    continue
                assert answer.succeeded is isinstance(found, Document)
                if isinstance(found, Document):
                    document = found
        assert document.revision == etcd.revision
        assert {k: (s.modified, s.created, s.value) for k, s in document.records.items()} == {
            k: (s.seen.mod_revision, s.seen.create_revision, value_of(s.seen.record))
            for k, s in etcd.data.items()
        }
        assert {ids[lease] for lease in document.leases} == etcd.leases.keys()
        assert decode("key", encode(document)) == document
        observed.append(document)
    # Whoever looked at any time hears of what happened since, in the order in which it did: of everything
    # that nodes said, and of the latest that became of the rest.
    early = data.draw(st.sampled_from(observed))
    told = [
        (c.key, c.revision, None if c.stored is None else c.stored.value)
        for c in document.changes_since(early)
    ]
    happened = [
        (f.key, f.revision, None if f.seen is None else value_of(f.seen.record))
        for f in etcd.log
        if f.revision > early.revision
    ]
    happened.sort(key=lambda h: (h[1], h[0]))
    assert [t for t in told if t[0].startswith(NODES)] == [h for h in happened if h[0].startswith(NODES)]
    assert [revision for _, revision, _ in told] == sorted(revision for _, revision, _ in told)
    for key in (LEADER, ROUND):
        values = {k: v.value for k, v in early.records.items()} | {name: value for name, _, value in told}
        latest = document.records.get(key)
        assert values.get(key) == (None if latest is None else latest.value)


# -- leases ------------------------------------------------------------------------------------------


def test_a_lease_that_is_silent_takes_its_keys_with_it() -> None:
    document = EMPTY.granted("a/1").granted("b/1")
    document = after(document, commit(put(node_key("a"), node("a"), Keep.NODE)), "a/1")
    document = after(document, commit(put(node_key("b"), node("b"), Keep.NODE)), "b/1")
    ended = document.expired({"a/1": 0})
    assert set(ended.records) == {node_key("b")}
    assert set(ended.leases) == {"b/1"}


def test_a_lease_that_was_heard_of_meanwhile_is_not_ended() -> None:
    document = EMPTY.granted("a/1")
    heard = document.renewed("a/1")
    assert heard is not None
    assert heard.expired({"a/1": 0}) is heard
    assert heard.revision == document.revision, "a heartbeat is no change of a record"


def test_what_has_ended_is_not_renewed() -> None:
    assert EMPTY.granted("a/1").revoked("a/1").renewed("a/1") is None


def test_a_key_that_is_written_under_a_later_lease_outlives_the_earlier() -> None:
    document = EMPTY.granted("a/1").granted("a/2")
    for lease in ("a/1", "a/2"):
        document = after(document, commit(put(node_key("a"), node("a"), Keep.NODE)), lease)
    assert set(document.revoked("a/1").records) == {node_key("a")}


# -- what has changed --------------------------------------------------------------------------------


def test_whoever_looks_only_after_a_goodbye_hears_it() -> None:
    """A node says that it leaves and goes at once: that is no loss."""
    before = after(EMPTY.granted("a/1"), commit(put(node_key("a"), node("a"), Keep.NODE)), "a/1")
    document = after(before, commit(put(node_key("a"), node("a", Want.LEAVING), Keep.NODE)), "a/1").revoked(
        "a/1"
    )
    told = document.changes_since(before)
    assert [(c.revision, c.stored is None) for c in told] == [(3, False), (4, True)]
    assert told[0].stored is not None
    assert told[0].stored.value["want"] == "LEAVING"


def test_what_is_forgotten_of_the_past_is_told_as_it_is_now() -> None:
    a, b = node_key("a"), node_key("b")
    before = after(EMPTY, commit(put(b, node("b")), put(a, node("a"))))
    document = after(before, commit(Delete(b)))
    for _ in range(MOST_PAST + 2):
        document = after(document, commit(put(a, node("a"))))
    assert len(document.past) == MOST_PAST
    told = document.changes_since(before)
    assert KeyChange(b, document.revision, None) in told
    assert KeyChange(a, document.revision, document.records[a]) == told[-2]


def test_the_newest_of_the_history_is_kept_and_has_no_past() -> None:
    document = EMPTY
    for number in (1, 2, 3, 3, *range(4, MOST_HISTORY + 3)):
        document = after(document, commit(put(history_key(number), world_of("a"))))
    assert sorted(document.records) == [history_key(number) for number in range(3, MOST_HISTORY + 3)]
    assert document.past == ()


# -- as bytes ----------------------------------------------------------------------------------------

WHOLE = replace(
    EMPTY,
    revision=5,
    leases={"a/1": 7},
    records={"nodes/a": Stored({"x": "é"}, 5, 3, "a/1")},
    past=(Past("nodes/a", Stored({"x": 1}, 3, 3, "a/1"), 5, deleted=False),),
)


def fields(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encode(WHOLE)), **changes}).encode()


def test_a_document_is_one_line_that_people_can_read() -> None:
    text = encode(WHOLE).decode()
    assert "\n" not in text
    assert '"nodes/a":{"modified":5,"created":3,"lease":"a/1","value":{"x":"é"}}' in text
    assert decode("key", fields()) == WHOLE


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\x80\x04\x95garbage",
        b"{",
        b"[]",
        b"null",
        b"1",
        b"[" * 100_000,
        b'"text"',
        b"\xff",
        b"{}",
        fields(schema=0),
        fields(schema="1"),
        fields(schema=True),
        fields(history=""),
        fields(history=5),
        fields(revision=0),
        fields(revision=4),
        fields(revision=1.5),
        fields(leases=[]),
        fields(leases={"a/1": -1}),
        fields(leases={"a/1": "7"}),
        fields(leases={}),
        fields(records=[]),
        fields(records={"nodes/a": 5}),
        fields(records={"nodes/a": {"modified": 5, "created": 3, "lease": ""}}),
        fields(records={"nodes/a": {"modified": 3, "created": 4, "lease": "", "value": 1}}),
        fields(past={}),
        fields(past=[1]),
        fields(past=json.loads(encode(WHOLE))["past"] * (MOST_PAST + 1)),
        fields(past=[{**json.loads(encode(WHOLE))["past"][0], "deleted": 1}]),
        fields(past=[{**json.loads(encode(WHOLE))["past"][0], "until": 3}]),
    ],
    ids=lambda state: repr(state[:40]),
)
def test_what_is_no_document_is_refused_with_the_name_of_its_key(state: bytes) -> None:
    with pytest.raises(RendezvousStateError, match=r"'the key'.*--rdzv-id"):
        decode("the key", state)


def test_a_newer_document_is_refused_with_what_to_do() -> None:
    with pytest.raises(RendezvousStateError, match=r"'the key'.*version 2.*same release"):
        decode("the key", fields(schema=2))


def test_a_document_that_is_too_large_is_neither_written_nor_read() -> None:
    large = replace(WHOLE, records={"nodes/a": Stored("x" * MOST_BYTES, 5, 3)})
    with pytest.raises(ValueError, match="use the etcd backend"):
        encode(large)
    with pytest.raises(RendezvousStateError, match="bytes long"):
        decode("the key", b" " * (MOST_BYTES + 1))
