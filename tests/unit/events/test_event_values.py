"""Events are checked when they are made, and are one line of strict JSON that reads back as the same."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.events import Event, EventSource, NodeState, RdzvEvent

values = (
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
)


@given(
    name=st.text(),
    source=st.sampled_from(EventSource),
    timestamp=st.integers(min_value=0, max_value=2**62),
    metadata=st.dictionaries(st.text(), values),
)
def test_an_event_reads_back_as_the_same(
    name: str, source: EventSource, timestamp: int, metadata: dict[str, Any]
) -> None:
    event = Event(name, source, timestamp, metadata)
    line = event.serialize()
    assert "\n" not in line
    assert Event.deserialize(line) == event
    assert str(event) == line


@given(
    texts=st.tuples(st.text(), st.text(), st.text(), st.text(), st.text(), st.text()),
    pid=st.integers(),
    state=st.sampled_from(NodeState),
    ranks=st.tuples(st.none() | st.integers(), st.none() | st.integers()),
)
def test_a_rendezvous_event_reads_back_as_the_same(
    texts: tuple[str, str, str, str, str, str],
    pid: int,
    state: NodeState,
    ranks: tuple[int | None, int | None],
) -> None:
    name, run_id, message, hostname, endpoint, trace = texts
    event = RdzvEvent(name, run_id, message, hostname, pid, state, endpoint, *ranks, trace)
    line = event.serialize()
    assert "\n" not in line
    assert RdzvEvent.deserialize(line) == event


def test_the_line_is_what_the_peers_write() -> None:
    line = Event("e", EventSource.WORKER, 5, {"run_id": "r", "ok": True}).serialize()
    assert json.loads(line) == {
        "name": "e",
        "source": "WORKER",
        "timestamp": 5,
        "metadata": {"run_id": "r", "ok": True},
    }


def test_the_time_is_now_unless_it_is_given() -> None:
    before = time.time_ns() // 1_000_000
    event = Event("e", EventSource.AGENT)
    assert before <= event.timestamp <= time.time_ns() // 1_000_000
    assert Event("e", EventSource.AGENT, 0).timestamp == 0


def test_the_names_of_the_other_peer_are_accepted() -> None:
    event = Event(source="RDZV", event_type="e", created=7, metadata={"a": 1})
    assert event == Event("e", EventSource.RDZV, 7, {"a": 1})
    assert (event.event_type, event.created) == ("e", 7)
    line = '{"event_type": "e", "source": "RDZV", "created": 7, "metadata": {"a": 1}}'
    assert Event.deserialize(line) == event
    event.event_type, event.created = "f", 8
    assert (event.name, event.timestamp) == ("f", 8)
    rdzv = RdzvEvent(rendezvous_id="n", run_id="r", local_rank=3, node_state="INITIALIZED")
    assert (rdzv.name, rdzv.rendezvous_id, rdzv.local_id, rdzv.local_rank) == ("n", "n", 3, 3)
    assert rdzv.node_state is NodeState.INIT


def test_an_event_keeps_a_copy_of_its_metadata() -> None:
    metadata: dict[str, Any] = {"a": 1}
    event = Event("e", EventSource.AGENT, metadata=metadata)
    metadata["a"] = 2
    assert event.metadata == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"source": "AGENT"}, TypeError, "needs a name and a source"),
        ({"name": "e"}, TypeError, "needs a name and a source"),
        ({"name": "e", "source": "AGENT", "event_type": "f"}, TypeError, "name or event_type.*got both"),
        ({"name": "e", "source": "AGENT", "timestamp": 1, "created": 1}, TypeError, "got both"),
        ({"name": 5, "source": "AGENT"}, TypeError, "name is 5: it must be text"),
        ({"name": "e", "source": "AGENT", "timestamp": 1.5}, TypeError, "timestamp is 1.5"),
        ({"name": "e", "source": "AGENT", "timestamp": True}, TypeError, "timestamp is True"),
        ({"name": "e", "source": "agent"}, ValueError, "'agent': known are AGENT, WORKER, RDZV"),
        ({"name": "e", "source": "AGENT", "metadata": {"a": [1]}}, TypeError, "'a' of type list: use text"),
        ({"name": "e", "source": "AGENT", "metadata": {5: 1}}, TypeError, "key 5"),
        ({"name": "e", "source": "AGENT", "metadata": {"a": float("nan")}}, ValueError, "'a' = nan"),
    ],
)
def test_what_is_no_event_is_refused(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Event(**arguments)


def test_what_is_no_rendezvous_event_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown NodeState 'DEAD': known are INIT, INITIALIZED"):
        RdzvEvent("n", node_state="DEAD")
    with pytest.raises(TypeError, match="pid is 'x'"):
        RdzvEvent("n", pid="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="local_id or local_rank"):
        RdzvEvent("n", local_id=1, local_rank=2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "cannot be read: Expecting value"),
        ("[1]", "expected a JSON object"),
        ('{"name": "e"}', "source is missing"),
        ('{"name": "e", "source": "AGENT", "colour": 1}', "no field 'colour'"),
        ('{"name": "e", "event_type": "f", "source": "AGENT"}', "both its names"),
        ('{"name": "e", "source": "AGENT", "timestamp": "now"}', "timestamp is 'now'"),
        ('{"name": "e", "source": "AGENT", "metadata": [["a", 1]]}', "expected a JSON object"),
        ('{"name": "e", "source": "AGENT", "metadata": {"a": NaN}}', "NaN is not strict JSON"),
        ('{"name": "e", "source": "AGENT", "metadata": {"a": 1e999}}', "'a' = inf"),
        ('{"name": "e", "source": ["AGENT"]}', "unknown EventSource"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_line_of_an_event_is_refused(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Event.deserialize(line)
    with pytest.raises(ValueError, match="RdzvEvent"):
        RdzvEvent.deserialize(line)


def test_an_event_that_was_spoilt_says_so() -> None:
    event = Event("e", EventSource.AGENT)
    event.metadata["a"] = object()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="'e' cannot be written as JSON"):
        event.serialize()
