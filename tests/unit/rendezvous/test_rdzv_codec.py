"""Records to and from what etcd holds: nothing is lost, and nothing that is wrong gets in."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.rendezvous import RendezvousStateError
from elastic.rendezvous.codec import decode, encode, kind_of
from elastic.rendezvous.core import view
from elastic.rendezvous.core.records import (
    Failure,
    Leader,
    Member,
    Node,
    Outcome,
    Phase,
    Record,
    Round,
    Terminal,
    Trigger,
    Want,
)

STAMP = "2025-01-02T03:04:05.678+00:00"

text = st.text(max_size=20)
word = st.text(min_size=1, max_size=20)
u32 = st.integers(0, 2**32 - 1)
positive = st.integers(1, 2**32 - 1)

failures = st.builds(
    Failure,
    round=u32,
    rank=u32,
    local_rank=u32,
    exit_code=st.integers(-(2**31), 2**31 - 1),
    message=text,
    final=st.booleans(),
    hostname=text,
    pid=u32,
    signal=u32,
    error=text,
    traceback=text,
    stderr=text,
    hint=text,
    log=text,
    error_file=text,
    time=u32,
)
members = st.builds(
    Member, node_id=word, name=text, address=text, hostname=text, local_world_size=positive, role=text
)
nodes = st.builds(
    Node,
    node_id=word,
    want=st.sampled_from(Want),
    round=u32,
    name=word,
    address=word,
    hostname=text,
    pid=u32,
    local_world_size=positive,
    role=word,
    master_port=u32,
    rank=st.none() | u32,
    labels=st.dictionaries(text, text, max_size=3),
    cause=text,
    failure=st.none() | failures,
)


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    phase = draw(st.sampled_from(Phase))
    low = draw(positive)
    fewest = int(phase is Phase.FORMED)
    world = tuple(draw(st.lists(members, max_size=4, min_size=fewest, unique_by=lambda m: m.node_id)))
    return Round(
        incarnation=draw(positive),
        round=draw(positive),
        phase=phase,
        min_nodes=low,
        max_nodes=draw(st.integers(low, 2**32 - 1)),
        world=world,
        master_addr=draw(text),
        master_port=draw(u32),
        nodes_waiting=draw(u32),
        nodes_leaving=draw(u32),
        finished=tuple(draw(st.lists(st.integers(0, len(world) - 1), max_size=4))) if world else (),
        departed=draw(u32),
        failures=draw(u32),
        cause=draw(text),
        trigger=draw(st.sampled_from(Trigger)),
    )


terminals = st.builds(
    Terminal,
    outcome=st.sampled_from(Outcome),
    reason=text,
    exit_code=u32,
    incarnation=u32,
    round=u32,
    node_id=text,
    job_token=text,
    failure=st.none() | failures,
)
leaders = st.builds(Leader, node_id=text)
any_record: st.SearchStrategy[Record] = st.one_of(nodes, rounds(), terminals, leaders)


def key_of(record: Record) -> str:
    if isinstance(record, Node):
        return view.node_key(record.node_id)
    return {Round: view.ROUND, Terminal: view.CLOSED, Leader: view.LEADER}[type(record)]


NODE = Node(
    node_id="n1",
    want=Want.JOINING,
    round=1,
    name="n1",
    address="10.0.0.1",
    hostname="h",
    pid=7,
    local_world_size=2,
    role="trainer",
    master_port=1234,
)
MEMBER = Member(node_id="n1", name="n1", address="a", hostname="h", local_world_size=1, role="r")
ROUND = Round(incarnation=1, round=3, phase=Phase.FORMED, min_nodes=1, max_nodes=2, world=(MEMBER,))
TERMINAL = Terminal(
    outcome=Outcome.FAILED, reason="it broke", exit_code=3, incarnation=1, round=3, node_id="n1"
)
LEADER = Leader(node_id="n1")
EXAMPLES: list[Record] = [NODE, ROUND, TERMINAL, LEADER]


def document(record: Record, **changes: Any) -> bytes:
    """The record's JSON with some fields changed."""
    fields = json.loads(encode(record, written_at=STAMP))
    return json.dumps({**fields, **changes}).encode()


def refusal(key: str, value: bytes, kind: type[Record]) -> str:
    with pytest.raises(RendezvousStateError) as caught:
        decode(key, value, kind)
    message = str(caught.value)
    assert repr(key) in message, "it names the key"
    return message


# -- what we write ----------------------------------------------------------------------------------


@given(any_record)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert decode(key_of(record), encode(record, written_at=STAMP), type(record)) == record


@given(any_record)
def test_a_record_is_one_line(record: Record) -> None:
    value = encode(record, written_at=STAMP)
    assert not {b"\n", b"\r"} & {value[i : i + 1] for i in range(len(value))}


def test_fields_are_in_the_order_of_the_schema() -> None:
    assert list(json.loads(encode(NODE, written_at=STAMP))) == [
        "schema",
        "nodeId",
        "want",
        "round",
        "name",
        "address",
        "hostname",
        "pid",
        "localWorldSize",
        "role",
        "masterPort",
        "labels",
        "cause",
        "writtenAt",
        "draining",
    ]
    assert list(json.loads(encode(ROUND, written_at=STAMP)))[:5] == [
        "schema",
        "incarnation",
        "round",
        "phase",
        "world",
    ]


def test_zeroes_are_written_and_what_is_absent_is_not() -> None:
    written = json.loads(encode(ROUND, written_at=STAMP))
    assert (written["nodesWaiting"], written["departed"], written["cause"]) == (0, 0, "")
    assert not {"rank", "failure"} & json.loads(encode(NODE, written_at=STAMP)).keys()


def test_a_record_reads_well() -> None:
    assert encode(LEADER, written_at=STAMP) == (
        b'{"schema": 1, "nodeId": "n1", "writtenAt": "2025-01-02T03:04:05.678+00:00"}'
    )
    assert "é".encode() in encode(Leader(node_id="é"), written_at=STAMP)


def test_a_node_that_failed_says_how() -> None:
    failure = Failure(
        round=2,
        rank=5,
        local_rank=1,
        exit_code=137,
        message="killed",
        final=True,
        hostname="b",
        pid=7,
        signal=9,
        stderr="one\ntwo",
    )
    written = json.loads(encode(TERMINAL.__class__(**_fields(TERMINAL), failure=failure), written_at=STAMP))
    assert written["failure"] == {
        "round": 2,
        "rank": 5,
        "localRank": 1,
        "exitCode": 137,
        "message": "killed",
        "final": True,
        "hostname": "b",
        "pid": 7,
        "signal": 9,
        "error": "",
        "traceback": "",
        "stderr": "one\ntwo",
        "hint": "",
        "log": "",
        "errorFile": "",
        "time": 0,
    }


def _fields(terminal: Terminal) -> dict[str, Any]:
    names = ("outcome", "reason", "exit_code", "incarnation", "round", "node_id")
    return {name: getattr(terminal, name) for name in names}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("round", Round),
        ("closed", Terminal),
        ("leader", Leader),
        ("nodes/a", Node),
        ("nodes/a/b", Node),
        ("history/00000001", Round),
        ("store/00000001/x", None),
        ("rounds", None),
        ("", None),
    ],
)
def test_the_key_says_which_record(key: str, kind: type[Record] | None) -> None:
    assert kind_of(key) is kind


# -- what we read -----------------------------------------------------------------------------------

DEEP = b'{"schema": 1, "world": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

GARBAGE = [
    b"",
    b"\x00",
    b"\xff\xfe\xfd",
    b"null",
    b"true",
    b"1",
    b'"text"',
    b"[]",
    b"{}",
    b"{",
    b'{"schema": 1',
    b'{"schema": 1}}',
    b"{'schema': 1}",
    b"<xml/>",
    b"1" * 10_000,
    b'{"schema": ' + b"9" * 10_000 + b"}",
    DEEP,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b"Y2FuaW1hZGFt",
]


@pytest.mark.parametrize("kind", [Node, Round, Terminal, Leader])
@pytest.mark.parametrize("value", GARBAGE, ids=lambda value: repr(value[:20]))
def test_garbage_is_refused(value: bytes, kind: type[Record]) -> None:
    if kind is Leader and value == b'{"schema": 1}':
        return
    refusal("some/key", value, kind)


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_a_truncated_record_is_refused_wherever_it_ends(record: Record) -> None:
    value = encode(record, written_at=STAMP)
    for length in range(len(value)):
        refusal(key_of(record), value[:length], type(record))


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_and_not_executed(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "executed"
    bomb = pickle.dumps(_Bomb(trap), protocol=protocol)
    for record in EXAMPLES:
        refusal(key_of(record), bomb, type(record))
    assert not trap.exists()
    pickle.loads(bomb)
    assert trap.exists(), "the trap works"


@pytest.mark.parametrize("schema", [2, 3, 2**31])
def test_a_newer_version_is_refused_with_what_to_do(schema: int) -> None:
    message = refusal("nodes/n1", document(NODE, schema=schema, novelty=[1]), Node)
    assert f"schema version {schema}" in message
    assert "same release" in message


@pytest.mark.parametrize("schema", [None, 0, -1, "1", 1.0, True, [], {}])
def test_a_version_that_is_none_is_refused(schema: Any) -> None:
    assert "no schema version" in refusal("nodes/n1", document(NODE, schema=schema), Node)


def test_an_unknown_field_is_refused() -> None:
    assert "novelty" in refusal("nodes/n1", document(NODE, novelty=1), Node)
    assert "novelty" in refusal("round", document(ROUND, world=[{"nodeId": "a", "novelty": 1}]), Round)


@pytest.mark.parametrize(
    ("record", "changes"),
    [
        (NODE, {"nodeId": 1}),
        (NODE, {"want": "SLEEPING"}),
        (NODE, {"want": "UNKNOWN"}),
        (NODE, {"want": 0}),
        (NODE, {"want": 99}),
        (NODE, {"want": None}),
        (NODE, {"want": ["JOINING"]}),
        (NODE, {"round": -1}),
        (NODE, {"round": 2**32}),
        (NODE, {"round": 1.5}),
        (NODE, {"round": "one"}),
        (NODE, {"round": {}}),
        (NODE, {"labels": []}),
        (NODE, {"labels": {"a": 1}}),
        (NODE, {"labels": {"a": None}}),
        (NODE, {"failure": {"final": "maybe"}}),
        (NODE, {"name": ""}),
        (NODE, {"name": "\ud800"}),
        (NODE, {"labels": {"\ud800": "x"}}),
        (NODE, {"address": ""}),
        (NODE, {"role": ""}),
        (NODE, {"localWorldSize": 0}),
        (ROUND, {"world": {}}),
        (ROUND, {"world": [1]}),
        (ROUND, {"world": [None]}),
        (ROUND, {"world": [[]]}),
        (ROUND, {"world": []}),
        (ROUND, {"phase": 7}),
        (ROUND, {"phase": "UNKNOWN"}),
        (ROUND, {"round": 0}),
        (ROUND, {"incarnation": 0}),
        (ROUND, {"minNodes": 0}),
        (ROUND, {"minNodes": 3}),
        (TERMINAL, {"outcome": 12}),
        (TERMINAL, {"outcome": "LOST"}),
        (TERMINAL, {"exitCode": "x"}),
        (LEADER, {"nodeId": ["n1"]}),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else "",
)
def test_a_wrong_value_is_refused(record: Record, changes: dict[str, Any]) -> None:
    refusal(key_of(record), document(record, **changes), type(record))


def test_a_world_with_a_node_twice_or_without_workers_is_refused() -> None:
    (member,) = json.loads(encode(ROUND, written_at=STAMP))["world"]
    assert "twice" in refusal("round", document(ROUND, world=[member, member]), Round)
    idle = {**member, "localWorldSize": 0}
    assert "local_world_size 0" in refusal("round", document(ROUND, world=[idle]), Round)


def test_a_node_under_another_ones_key_is_refused() -> None:
    assert "'n1'" in refusal("nodes/n2", encode(NODE, written_at=STAMP), Node)
    refusal("nodes/n1/x", encode(NODE, written_at=STAMP), Node)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({name for record in EXAMPLES for name in json.loads(encode(record, written_at=STAMP))})


@given(
    st.sampled_from(EXAMPLES),
    st.dictionaries(st.sampled_from([*FIELDS, "failure", "rank", "labels"]), json_values, max_size=4),
)
def test_whatever_a_document_says_it_is_a_record_or_refused(record: Record, changes: dict[str, Any]) -> None:
    try:
        found = decode(key_of(record), document(record, **changes), type(record))
    except RendezvousStateError:
        return
    assert decode(key_of(found), encode(found, written_at=STAMP), type(found)) == found


@given(st.binary(max_size=200), st.sampled_from([Node, Round, Terminal, Leader]))
def test_whatever_the_bytes_they_are_refused_in_words(value: bytes, kind: type[Record]) -> None:
    try:
        decode("nodes/x", value, kind)
    except RendezvousStateError:
        return
    assert json.loads(value)["schema"] == 1
