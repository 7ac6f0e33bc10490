"""What is no record of ours: it stops nobody who runs, is never executed, and is named to who would join."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from support.etcd import wait_until
from support.nodes import PATIENCE, Node, records

from elastic.etcd import Client
from elastic.rendezvous import RendezvousStateError, Standing

MakeNode = Callable[..., Node]


class _Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


KINDS = ["text", "pickle", "newer"]
KEYS = ["round", "closed", "leader", "nodes/x"]


def garbage(kind: str, path: Path) -> bytes:
    return {
        "text": b"\xff\xfe not a record",
        "pickle": pickle.dumps(_Bomb(path)),
        "newer": json.dumps({"schema": 2, "nodeId": "x", "novelty": {}}).encode(),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", KEYS)
def test_a_node_that_would_join_is_told_the_key(
    node: MakeNode, client: Client, run_id: str, tmp_path: Path, key: str, kind: str
) -> None:
    trap = tmp_path / "executed"
    value = garbage(kind, trap)
    client.put(f"/elastic/{run_id}/{key}".encode(), value)
    each = node("1:1")
    with pytest.raises(RendezvousStateError, match=f"'{key}'") as caught:
        each.handler.next_rendezvous()
    assert ("same release" in str(caught.value)) == (kind == "newer")
    assert not trap.exists()
    assert client.get(f"/elastic/{run_id}/{key}".encode()) is not None, "it is not ours to delete"
    assert each.handler.shutdown()
    client.delete(f"/elastic/{run_id}/{key}".encode())
    assert records(client, run_id, "nodes/") == {}, "it left nothing of its own"
    assert "leader" not in records(client, run_id)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", KEYS)
def test_a_running_world_is_not_disturbed(
    node: MakeNode, client: Client, run_id: str, tmp_path: Path, key: str, kind: str
) -> None:
    trap = tmp_path / "executed"
    nodes = [node("2:3", last_call_timeout=0).follow() for _ in range(2)]
    for each in nodes:
        each.until_world(2)
    name = f"/elastic/{run_id}/{key}".encode()
    client.put(name, garbage(kind, trap))
    # A revoked lease makes its node read everything again, and write.
    victim = nodes[0]
    own = f"/elastic/{run_id}/nodes/{victim.id}".encode()
    before = client.get(own)
    assert before is not None
    client.lease_revoke(before.lease)
    if key in ("round", "closed"):
        victim.until(lambda: bool(victim.statuses), what="any news")
    else:
        wait_until(lambda: client.get(own) is not None, what="the node's record")
    assert all(each.handler.status().standing is Standing.CURRENT for each in nodes)
    assert not trap.exists()

    # Once it is deleted, all goes on as ever.
    client.delete(name)
    node("2:3").follow().until_world(3)
    for each in nodes:
        each.until(lambda each=each: each.worlds[-1].world_size == 3, what="the next world")  # type: ignore[misc]
        assert each.sizes == [2, 3]
    assert not trap.exists()


def test_a_node_whose_own_record_is_garbage_runs_on(
    node: MakeNode, client: Client, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it reads everything again, as it does when the answer to a transaction is lost."""
    monkeypatch.setenv("ELASTIC_FAULT", "drop@announce")
    leader = node("1:2", last_call_timeout=0)
    monkeypatch.delenv("ELASTIC_FAULT")
    leader.join().result(PATIENCE)
    own = f"/elastic/{run_id}/nodes/{leader.id}".encode()
    wait_until(lambda: records(client, run_id)[f"nodes/{leader.id}"]["want"] == "ACTIVE", what="the world")
    client.put(own, b"garbage")
    node("1:2").follow()
    leader.until_status(lambda status: status.nodes_waiting == 1, what="the announcement")
    assert leader.handler.status().standing is Standing.CURRENT
    assert client.get(own) is not None


def test_a_strangers_record_is_in_the_way_of_no_later_world(
    node: MakeNode, client: Client, run_id: str
) -> None:
    nodes = [node("1:3", last_call_timeout=3).follow() for _ in range(3)]
    for each in nodes:
        each.until_world(3)
    client.put(f"/elastic/{run_id}/nodes/x".encode(), garbage("text", Path()))
    nodes.pop().close()
    for each in nodes:
        each.until_world(2)
