"""The released etcd3 client reads what we write, and writes what we watch.

It speaks the same protocol from an implementation that shares nothing with ours, so agreement on keys,
values, revisions and leases shows that ours is right about the wire. It runs in a process of its own, see
`etcd3_oracle`, from the extra `etcd3`; without that extra these tests fail, and are not skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.etcd import EtcdServer

from elastic.etcd import Client, Event, Put, WatchBatch, absent, created_at, prefix
from elastic.rendezvous import RendezvousParameters, create_handler

PATIENCE = 30.0


class Oracle:
    """The process that runs etcd3. Calling it carries out one command and returns the answer."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("etcd3_oracle.py")), host, port],
            env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, command: str, *arguments: Any) -> None:
        """Send a command; its answer is for `answer` to fetch."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "etcd3 failed; its traceback is on stderr"
        return json.loads(line)

    def __call__(self, command: str, *arguments: Any) -> Any:
        self.begin(command, *arguments)
        return self.answer()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def oracle(etcd: EtcdServer) -> Iterator[Oracle]:
    assert importlib.util.find_spec("etcd3"), (
        'etcd3 is missing: pip install -e ".[etcd3]", or run scripts/test'
    )
    oracle = Oracle(etcd.endpoint)
    yield oracle
    oracle.close()


@pytest.fixture
def under() -> str:
    """A prefix of this test alone."""
    return f"/interop/{uuid.uuid4().hex}/"


def events_from(sink: queue.Queue[Any], count: int) -> list[Event]:
    """The next `count` events of a watch, from batches of whole revisions."""
    events: list[Event] = []
    while len(events) < count:
        batch = sink.get(timeout=PATIENCE)
        assert isinstance(batch, WatchBatch)
        events.extend(batch.events)
    return events


def test_it_reads_our_puts(client: Client, oracle: Oracle, under: str) -> None:
    values = [b"", "gr\u00fc\u00df dich".encode(), bytes(range(256))]
    keys = [under.encode() + name for name in (b"a", b"b", b"c\xff\x00")]
    lease = client.lease_grant(60)
    revisions = [client.put(key, value, lease=lease.id) for key, value in zip(keys, values, strict=True)]
    assert oracle("get_prefix", under) == [
        {
            "key": key.decode("latin-1"),
            "value": value.decode("latin-1"),
            "version": 1,
            "create_revision": revision,
            "mod_revision": revision,
            "lease": lease.id,
        }
        for key, value, revision in zip(keys, values, revisions, strict=True)
    ]


def test_it_sees_the_outcome_of_our_transactions(client: Client, oracle: Oracle, under: str) -> None:
    first, second = f"{under}1".encode(), f"{under}2".encode()
    won = client.txn([absent(first), absent(second)], [Put(first, b"won"), Put(second, b"won")])
    lost = client.txn([absent(first)], [Put(first, b"lost")], [Put(second, b"refused")])
    assert (won.succeeded, lost.succeeded) == (True, False)
    assert [(kv["value"], kv["mod_revision"]) for kv in oracle("get_prefix", under)] == [
        ("won", won.revision),
        ("refused", lost.revision),
    ]


def test_it_is_fenced_by_the_revision_we_wrote(client: Client, oracle: Oracle, under: str) -> None:
    leader = f"{under}leader"
    created = client.txn([absent(leader.encode())], [Put(leader.encode(), b"us")]).revision
    moved = {f"{under}round": "2"}
    assert oracle("put_all_if_created_at", leader, created - 1, moved) is False
    assert oracle("put_all_if_created_at", leader, created, moved) is True


def test_we_are_fenced_by_the_revision_it_wrote(client: Client, oracle: Oracle, under: str) -> None:
    leader = f"{under}leader"
    created = oracle("put", leader, "it")
    moved = [Put(f"{under}round".encode(), b"2")]
    assert not client.txn([created_at(leader.encode(), created - 1)], moved).succeeded
    assert client.txn([created_at(leader.encode(), created)], moved).succeeded


def test_it_knows_our_lease_and_its_end_deletes_our_keys(client: Client, oracle: Oracle, under: str) -> None:
    key = f"{under}node"
    keeper = client.keep_lease(60, into=queue.Queue())
    try:
        client.put(key.encode(), b"alive", lease=keeper.id)
        info = oracle("lease_info", keeper.id)
        assert (info["granted"], info["keys"]) == (60, [key])
        assert 0 < info["remaining"] <= 60
        oracle("revoke", keeper.id)
        assert client.get(key.encode()) is None
    finally:
        keeper.close()


def test_we_renew_and_end_its_lease(client: Client, oracle: Oracle) -> None:
    lease = oracle("lease", 60)
    assert client.lease_time_to_live(lease).granted == 60
    assert client.keep_alive_once(lease) == 60
    client.lease_revoke(lease)
    assert oracle("lease_info", lease)["remaining"] == -1


def test_it_watches_what_we_write(client: Client, oracle: Oracle, under: str) -> None:
    first, second = f"{under}1", f"{under}2"
    start = client.get_prefix(under.encode()).revision + 1
    oracle.begin("watch_prefix", under, start, 4)
    client.put(first.encode(), b"a")
    client.txn([], [Put(first.encode(), b"b"), Put(second.encode(), b"c")])
    client.delete(first.encode())
    assert [(event["kind"], event["key"], event["value"]) for event in oracle.answer()] == [
        ("PutEvent", first, "a"),
        ("PutEvent", first, "b"),
        ("PutEvent", second, "c"),
        ("DeleteEvent", first, ""),
    ]


def test_we_watch_what_it_writes(client: Client, oracle: Oracle, under: str) -> None:
    sink: queue.Queue[Any] = queue.Queue()
    start = client.get_prefix(under.encode()).revision + 1
    watch = client.watch([prefix(under.encode())], into=sink, start_revision=start)
    try:
        lease = oracle("lease", 60)
        oracle("put", f"{under}1", "a", lease)
        oracle("put_all_if_created_at", f"{under}2", 0, {f"{under}2": "b", f"{under}3": "c"})
        oracle("delete", f"{under}2")
        oracle("revoke", lease)
        seen = [(e.deleted, e.kv.key.decode(), e.kv.value, e.kv.lease) for e in events_from(sink, 5)]
    finally:
        watch.close()
    assert seen == [
        (False, f"{under}1", b"a", lease),
        (False, f"{under}2", b"b", 0),
        (False, f"{under}3", b"c", 0),
        (True, f"{under}2", b"", 0),
        (True, f"{under}1", b"", 0),
    ]


def test_it_reads_a_rendezvous_as_one_line_of_json_a_record(etcd: EtcdServer, oracle: Oracle) -> None:
    run_id = f"interop-{uuid.uuid4().hex}"
    handler = create_handler(RendezvousParameters("etcd", etcd.endpoint, run_id, 1, 1))
    try:
        world = handler.next_rendezvous()
        found = oracle("get_prefix", f"/elastic/{run_id}/")
    finally:
        handler.shutdown()
    assert all("\n" not in kv["value"] for kv in found)
    records = {kv["key"].removeprefix(f"/elastic/{run_id}/"): json.loads(kv["value"]) for kv in found}
    (node_id,) = [key.removeprefix("nodes/") for key in records if key.startswith("nodes/")]
    assert records[f"nodes/{node_id}"]["pid"] == os.getpid()
    assert records["leader"]["nodeId"] == node_id
    assert records["round"]["phase"] == "FORMED"
    assert records["round"]["round"] == world.round
    assert [member["nodeId"] for member in records["round"]["world"]] == [node_id]
    assert "closed" not in records
