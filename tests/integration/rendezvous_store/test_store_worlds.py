"""Worlds form, grow and shrink over plain stores, and live on when the store's host does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.nodes import Node, NodeProcess, ids

from elastic.rendezvous import RendezvousStatus, Standing

MakeNode = Callable[..., Node]
MakeProcess = Callable[..., NodeProcess]

BACKENDS: list[dict[str, Any]] = [
    {"backend": "tcp"},
    {"backend": "p10d"},
    {"backend": "c10d", "store_type": "file"},
    {"backend": "file"},
]

KINDS = ["tcp", pytest.param("file", marks=pytest.mark.slow)]


def is_in_file(conf: dict[str, Any]) -> bool:
    return "file" in conf.values()


@pytest.mark.parametrize("conf", BACKENDS, ids=lambda conf: "-".join(conf.values()))
def test_nodes_meet_come_leave_and_end(node: MakeNode, shared: Path, conf: dict[str, Any]) -> None:
    conf = {**conf, "ttl": 20, **({"endpoint": shared} if is_in_file(conf) else {})}  # no lease is to end
    first, second = node("2:3", **conf).follow(), node("2:3", **conf).follow()
    worlds = [each.until_world(2) for each in (first, second)]
    assert len({(w.round, w.participants, w.bootstrap_store_info) for w in worlds}) == 1
    assert {w.rank for w in worlds} == {0, 1}
    assert {each.handler.get_backend() for each in (first, second)} == {conf["backend"]}

    third = node("2:3", **conf).follow()
    worlds = [each.until_world(3) for each in (first, second, third)]
    assert [w.round for w in worlds] == [2, 2, 2]
    assert worlds[2].rank == 2, "who was there keeps its place"
    worlds[0].store.set("said by", first.id)
    assert worlds[2].store.get("said by") == first.id.encode()

    assert third.close(), "its goodbye was heard"
    worlds = [each.until_world(2, count=3) for each in (first, second)]
    assert [w.round for w in worlds] == [3, 3]
    assert not worlds[0].store.check(["said by"]), "each round has a store of its own"

    second.handler.set_closed()
    for each in (first, second):
        each.until_over()
        assert each.handler.is_closed()


@pytest.mark.parametrize("backend", KINDS)
def test_a_node_that_is_killed_is_missed(
    node: MakeNode, process: MakeProcess, shared: Path, backend: str
) -> None:
    conf = {"backend": backend, "ttl": 5, **({"endpoint": shared} if backend == "file" else {})}
    first, victim, third = node("2:3", **conf).follow(), process("2:3", **conf), node("2:3", **conf).follow()
    victim.until_world(3)
    before = [each.until_world(3) for each in (first, third)]
    victim.kill()
    after = [each.until_world(2) for each in (first, third)]
    assert {w.round for w in after} == {before[0].round + 1}
    assert ids(after[0]) == [i for i in ids(before[0]) if i in (first.id, third.id)]


@pytest.mark.slow
def test_a_run_that_died_in_a_file_is_taken_up(node: MakeNode, process: MakeProcess, shared: Path) -> None:
    """Nobody is left to end the leases of those who died, so whoever comes next watches them first."""
    conf = {"backend": "file", "endpoint": shared}
    victims = [process("2:2", **conf) for _ in range(2)]
    before = [victim.until_world(2) for victim in victims]
    for victim in victims:
        victim.kill()
    nodes = [node("2:2", **conf).follow() for _ in range(2)]
    after = [each.until_world(2) for each in nodes]
    assert {world.round for world in after} == {before[0]["round"] + 1}


@pytest.mark.parametrize("backend", KINDS)
def test_a_node_that_slept_for_longer_than_its_lease_starts_anew(
    node: MakeNode, process: MakeProcess, shared: Path, backend: str
) -> None:
    """It is fenced: what it ran belongs to an older round, and it joins a newer one."""
    conf = {"backend": backend, "ttl": 4, **({"endpoint": shared} if backend == "file" else {})}
    awake, sleeper = node("1:2", **conf).follow(), process("1:2", **conf)
    awake.until_world(2)
    told = sleeper.until_world(2)
    sleeper.pause()
    alone = awake.until_world(1, count=2)
    sleeper.resume()
    together = awake.until_world(2, count=3)
    again = sleeper.until(
        lambda each: each.get("round", 0) > told["round"] and each["world_size"] == 2, what="a newer world"
    )
    assert again["round"] == together.round > alone.round > told["round"]
    assert again["ids"] == ids(together)


def end(nodes: list[Node]) -> None:
    """End the job, and let them leave before the host does."""
    nodes[0].handler.set_closed()
    for each in nodes:
        each.until_over()
    for each in nodes:
        assert each.close()


# -- the host of the store ---------------------------------------------------------------------------


def away(status: RendezvousStatus) -> bool:
    return not status.connected


@pytest.mark.slow
def test_when_the_host_is_killed_workers_run_on_and_when_it_is_back_so_is_the_world(
    node: MakeNode, process: MakeProcess, endpoint: str
) -> None:
    host = process("1:3", is_host=1)
    host.until(lambda each: each.get("world_size") == 1, what="the store")
    members = [node("1:3").follow() for _ in range(2)]
    before = [each.until_world(3) for each in members]
    host.kill()
    for each in members:
        assert each.until_status(away, what="the store is away").standing is Standing.CURRENT
    counts = [len(each.worlds) for each in members]
    returned = process("1:3", is_host=1)
    after = [each.until_world(3, count=count + 1) for each, count in zip(members, counts, strict=True)]
    assert len({(w.round, w.participants, w.bootstrap_store_info) for w in after}) == 1
    assert after[0].round > before[0].round, "no number is used twice, though the store had forgotten them"
    told = returned.until(lambda each: each.get("round") == after[0].round, what="the same world")
    assert told["ids"] == ids(after[0])
    for each in members:
        assert each.error is None
        assert each.handler.status().connected
    end(members)


@pytest.mark.slow
def test_a_host_that_sleeps_costs_nobody_its_place(node: MakeNode, process: MakeProcess) -> None:
    """Nobody can tell the others' silence from that of the store."""
    host = process("1:3", is_host=1)
    host.until_world(1)
    members = [node("1:3").follow() for _ in range(2)]
    before = [each.until_world(3) for each in members]
    host.pause()
    for each in members:
        each.until_status(away, what="the store is away")
    time.sleep(2.5)
    host.resume()
    for each in members:
        each.until_status(lambda status: status.connected, what="the store is back")
    time.sleep(1.5)  # a mistake would need a moment to show
    assert [each.worlds[-1].round for each in members] == [before[0].round] * 2
    end(members)


def test_the_host_leaves_last(node: MakeNode) -> None:
    host, other = node("2:2", ttl=20).follow(), node("2:2", ttl=20).follow()
    host.until_world(2)
    host.handler.set_closed()
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(host.close)
        other.until_over()
        time.sleep(0.5)
        assert not gone.done(), "the other has not left yet"
        assert other.close(), "so its goodbye is heard"
        assert gone.result(10)
    assert time.monotonic() - started < 20


@pytest.mark.slow
def test_a_host_that_is_told_to_go_lets_the_others_form_their_world(
    node: MakeNode, process: MakeProcess
) -> None:
    """They hear of its leave before they lose the store, and run on without it."""
    host = process("1:3", is_host=1)
    host.until_world(1)
    members = [node("1:3").follow() for _ in range(2)]
    for each in members:
        each.until_world(3)
    assert host.process.stdin is not None
    host.process.stdin.close()
    after = [each.until_world(2) for each in members]
    assert len({w.round for w in after}) == 1
    host.process.wait(30)
    for each in members:
        assert each.until_status(away, what="the store is away").standing is Standing.CURRENT
