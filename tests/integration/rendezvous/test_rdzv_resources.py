"""What a handler holds it gives back: threads, descriptors, keys, and a port."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.etcd import EtcdServer, wait_until
from support.nodes import PATIENCE, Node, in_thread, records

from elastic.etcd import Client
from elastic.rendezvous import RendezvousError, RendezvousGracefulExitError

MakeNode = Callable[..., Node]


def descriptors() -> set[str]:
    """What this process has open."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        # The descriptor with which this directory is read is gone by now.
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{entry.name} {entry.readlink()}")
    return found


def full_life(node: MakeNode) -> None:
    members = [node("2:3"), node("2:3")]  # a world of one would let the other one wait
    for join in [each.join() for each in members]:
        join.result(PATIENCE)
    members[0].handler.regroup("once more")
    members[1].until_status(lambda s: s.reason == "once more", what="the next round")
    for join in [each.join() for each in members]:
        join.result(PATIENCE)
    for each in members:
        assert each.handler.shutdown()


def test_shutdown_leaves_no_thread_and_no_descriptor(node: MakeNode, run_id: str) -> None:
    full_life(node)  # what gRPC makes once it keeps
    threads, open_before = threading.active_count(), descriptors()
    for _ in range(3):
        full_life(node)
    wait_until(lambda: threading.active_count() <= threads, what="the end of the threads")
    wait_until(lambda: len(descriptors()) <= len(open_before), what="the end of the descriptors")


def test_shutdown_leaves_no_key_but_the_runs(node: MakeNode, client: Client, run_id: str) -> None:
    full_life(node)
    assert not {"leader", "closed"} & records(client, run_id).keys()
    assert records(client, run_id, "nodes/") == {}


def test_a_handler_that_was_never_used_holds_nothing(etcd: EtcdServer, node: MakeNode) -> None:
    threads = set(threading.enumerate())
    each = node("1:1")
    started = set(threading.enumerate()) - threads
    assert {thread.name for thread in started} == {"etcd-client"}, "nothing else runs before the first call"
    assert each.handler.status().connected
    assert each.handler.num_nodes_waiting() == 0
    each.handler.regroup("nothing runs")
    each.handler.workers_started()
    assert each.handler.shutdown()
    assert each.handler.shutdown()


def test_the_master_port_is_kept_free_until_the_workers_run(node: MakeNode) -> None:
    each = node("1:1")
    port = each.join().result(PATIENCE).bootstrap_store_info.master_port
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    with socket.socket() as worker:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        worker.bind(("127.0.0.1", port))
        worker.listen()
    each.handler.workers_started()
    with socket.socket() as anybody:
        anybody.bind(("127.0.0.1", port))


def test_every_round_has_a_port_of_its_own_offer(node: MakeNode) -> None:
    each = node("1:1")
    ports = []
    for _ in range(3):
        ports.append(each.join().result(PATIENCE).bootstrap_store_info.master_port)
        each.handler.regroup("once more")
    assert all(port > 0 for port in ports)


@pytest.mark.parametrize("attempt", range(10))
def test_shutdown_at_any_moment_of_a_join(node: MakeNode, client: Client, run_id: str, attempt: int) -> None:
    """Whatever the join is just doing, it ends, and nothing is left of it."""
    each = node("1:1", last_call_timeout=0)
    start = threading.Barrier(2)

    def join() -> str:
        start.wait()
        try:
            return f"round {each.handler.next_rendezvous().round}"
        except RendezvousGracefulExitError:
            return "left"

    outcome = in_thread(join, name="test-join")
    start.wait()
    threading.Event().wait(attempt * 0.004)
    assert each.handler.shutdown()
    assert outcome.result(PATIENCE) in {"round 1", "left"}
    assert records(client, run_id, "nodes/") == {}
    assert "leader" not in records(client, run_id)


def test_shutdown_from_several_threads(node: MakeNode) -> None:
    each = node("1:1")
    each.join().result(PATIENCE)
    calls = [in_thread(each.handler.shutdown, name="test-shutdown") for _ in range(4)]
    assert [call.result(PATIENCE) for call in calls] == [True] * 4


def test_a_frozen_etcd_does_not_hold_up_a_shutdown(
    etcd_server: Callable[..., EtcdServer], node_of: MakeNode, run_id: str
) -> None:
    server = etcd_server()
    each = node_of(server.endpoint, run_id, "1:1", read_timeout=1, close_timeout=2)
    each.join().result(PATIENCE)
    server.pause()
    try:
        assert not in_thread(each.handler.shutdown, name="test-shutdown").result(PATIENCE)
    finally:
        server.resume()


def test_a_crowd_of_refused_nodes_leaves_nothing(node: MakeNode, client: Client, run_id: str) -> None:
    first = node("1:1").follow()
    first.until_world(1)
    before = records(client, run_id).keys()
    for _ in range(3):
        other = node("2:2")
        with pytest.raises(RendezvousError):
            other.handler.next_rendezvous()
        assert other.handler.shutdown()
    assert records(client, run_id).keys() == before
