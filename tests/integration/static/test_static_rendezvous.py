"""The static rendezvous from Python: nodes in threads, on the loopback."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.addresses import others_way
from support.etcd import free_port
from support.node_fixtures import no_thread_is_left
from support.nodes import PATIENCE, in_thread

from elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousExhaustedError,
    RendezvousGracefulExitError,
    RendezvousInfo,
    RendezvousSettings,
    RendezvousStateError,
    Standing,
    StaticTCPRendezvous,
)
from elastic.rendezvous.static.master_port import MasterPort
from elastic.store import TCPStore

__all__ = ["no_thread_is_left"]

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

HOST = "127.0.0.1"
Make = Callable[..., StaticTCPRendezvous]


@pytest.fixture
def node() -> Iterator[Make]:
    """Makes handlers, as torch does: (host, port, rank, world size, ...)."""
    made: list[StaticTCPRendezvous] = []

    def make(host: str, port: int, rank: int, size: int, **options: Any) -> StaticTCPRendezvous:
        settings = RendezvousSettings(
            run_id="r",
            min_nodes=size,
            max_nodes=size,
            ttl=timedelta(seconds=3),
            connect_timeout=timedelta(seconds=2),
        )
        options = {"timeout": 20.0, "settings": settings, **options}
        made.append(StaticTCPRendezvous(host, port, rank, size, options.pop("run_id", "r"), **options))
        return made[-1]

    yield make
    # Whoever runs the store goes last, as in a job.
    for handler in sorted(made, key=lambda h: -h._rank):
        handler.shutdown()


def join(*nodes: StaticTCPRendezvous) -> list[RendezvousInfo]:
    calls = [join_later(node) for node in nodes]
    return [call.result(PATIENCE) for call in calls]


def join_later(node: StaticTCPRendezvous) -> Future[RendezvousInfo]:
    return in_thread(node.next_rendezvous, name=f"test-join {node.node_id}")


@pytest.mark.parametrize("host", [HOST, "localhost", "::1"])
def test_workers_get_the_very_endpoint_that_nodes_met_at(node: Make, host: str) -> None:
    port = free_port()
    infos = join(*(node(host, port, rank, 3) for rank in (2, 0, 1)))
    assert [info.rank for info in infos] == [2, 0, 1]
    assert {info.world_size for info in infos} == {3}
    assert {(i.bootstrap_store_info.master_addr, i.bootstrap_store_info.master_port) for i in infos} == {
        (host, port)
    }
    (participants,) = {tuple(member.name[:5] for member in info.participants) for info in infos}
    assert participants == ("rank0", "rank1", "rank2")
    infos[0].store.set("greeting", b"hello")
    assert [info.store.get("greeting") for info in infos] == [b"hello"] * 3


@pytest.mark.parametrize("workers_port", [None, 0])
def test_a_name_that_is_the_loopback_on_its_own_machine_is_reached_by_others(
    node: Make, workers_port: int | None
) -> None:
    port = free_port()
    own_name = "127.1"  # is 127.0.0.1, and written otherwise, as a name is
    hosts = [own_name, own_name, others_way()]  # as the name of node rank 0 is known to each
    infos = join(*(node(host, port, rank, 3, workers_port=workers_port) for rank, host in enumerate(hosts)))
    assert [info.rank for info in infos] == [0, 1, 2]
    assert [info.bootstrap_store_info.master_addr for info in infos] == hosts
    assert len({info.bootstrap_store_info.master_port for info in infos}) == 1


def test_the_workers_port_is_kept_free_for_a_server_until_workers_run(node: Make) -> None:
    port = free_port()
    first = node(HOST, port, 0, 2)
    info, _ = join(first, node(HOST, port, 1, 2))
    endpoint = (info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port)
    with socket.socket() as stranger:
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its number says it
            stranger.bind(endpoint)
        assert caught.value.errno == errno.EADDRINUSE
    with socket.create_server(endpoint):  # as the frameworks' stores do, it reuses addresses
        first.workers_started()


def test_without_a_port_for_workers_each_round_has_a_free_one(node: Make) -> None:
    port = free_port()
    first, second = (node(HOST, port, rank, 2, workers_port=0) for rank in (0, 1))
    ports = []
    for _ in range(2):
        infos = join(first, second)
        (chosen,) = {info.bootstrap_store_info.master_port for info in infos}
        ports.append(chosen)
    assert port not in ports
    assert ports[0] != ports[1]


def test_one_node_needs_no_place_to_meet(node: Make) -> None:
    (info,) = join(node(HOST, 0, 0, 1, workers_port=0))
    assert (info.rank, info.world_size) == (0, 1)


def test_a_node_that_regroups_wakes_the_others(node: Make) -> None:
    port = free_port()
    first, second = (node(HOST, port, rank, 2) for rank in (0, 1))
    told = threading.Event()
    assert first.subscribe(lambda: told.set() if first.status().standing is Standing.SUPERSEDED else None)
    join(first, second)
    told.clear()
    second.regroup("a worker failed")
    assert told.wait(PATIENCE)
    assert first.status().reason == "a worker failed"
    first.regroup("the other did")
    assert {info.round for info in join(first, second)} == {2}


def test_a_node_that_is_started_again_gets_its_rank_back(node: Make) -> None:
    port = free_port()
    first, second, third = (node(HOST, port, rank, 3) for rank in (0, 1, 2))
    join(first, second, third)
    second.shutdown()
    again = node(HOST, port, 1, 3)
    infos = join(first, again, third)
    assert [info.rank for info in infos] == [0, 1, 2]
    assert {len(info.participants) for info in infos} == {3}


def test_when_node_rank_0_goes_the_others_hear_that_the_job_is_over(node: Make) -> None:
    port = free_port()
    first, second = (node(HOST, port, rank, 2) for rank in (0, 1))
    join(first, second)
    first.leave("somebody pulled the plug")
    gone = in_thread(first.shutdown, name="test-shutdown")
    with pytest.raises(RendezvousClosedError, match=r"rank0@.*left: somebody pulled the plug"):
        join_later(second).result(PATIENCE)
    assert second.is_closed()
    second.shutdown()
    assert gone.result(PATIENCE)


def test_all_succeed_together(node: Make) -> None:
    port = free_port()
    nodes = [node(HOST, port, rank, 2) for rank in (0, 1)]
    ended = threading.Barrier(3)
    for each in nodes:
        each.subscribe(once_closed(each, ended))
    join(*nodes)
    assert all(each.report_success() for each in nodes)
    ended.wait(PATIENCE)
    for each in nodes:
        with pytest.raises(RendezvousGracefulExitError, match="succeeded"):
            each.next_rendezvous()


def once_closed(node: StaticTCPRendezvous, ended: threading.Barrier) -> Callable[[], None]:
    seen: list[bool] = []

    def listen() -> None:
        if not seen and node.status().standing is Standing.CLOSED:
            seen.append(True)
            threading.Thread(target=ended.wait, args=(PATIENCE,), name="test-ended").start()

    return listen


def test_a_chosen_port_that_somebody_took_meanwhile_ends_the_job_with_a_sentence(node: Make) -> None:
    port = free_port()
    first, second = (node(HOST, port, rank, 2) for rank in (0, 1))
    join(first, second)
    first.workers_started()
    with socket.create_server((HOST, port)):
        second.regroup("a worker failed")
        waiting = join_later(second)
        with pytest.raises(RendezvousConnectionError, match="choose another --master-port"):
            first.next_rendezvous()
        with pytest.raises(RendezvousClosedError, match=rf"rank0@.*cannot meet at {HOST}:{port}"):
            waiting.result(PATIENCE)


def test_who_asks_for_a_port_that_is_taken_hears_so() -> None:
    with TCPStore(HOST, 0, is_master=True) as store, socket.create_server((HOST, 0)) as taken:
        with pytest.raises(RendezvousConnectionError, match="is taken"):
            MasterPort(HOST, taken.getsockname()[1]).offer(store, HOST)
        with pytest.raises(RendezvousConnectionError, match="is taken"):
            MasterPort(HOST, 0).ask(store)


def test_a_wrong_secret_is_told_at_once(node: Make, tmp_path: Path) -> None:
    port = free_port()
    secret_file = tmp_path / "secret"
    secret_file.write_text("open sesame\n")
    first = node(HOST, port, 0, 2, secret="open sesame")
    waiting = join_later(first)
    with pytest.raises(RendezvousConnectionError, match=r"node rank 0 at 127\.0\.0\.1"):
        join_later(node(HOST, port, 1, 2, secret="guess")).result(PATIENCE)
    join_later(node(HOST, port, 1, 2, secret_file=secret_file)).result(PATIENCE)
    waiting.result(PATIENCE)


def test_what_is_no_store_at_the_place_is_named(node: Make) -> None:
    with socket.create_server((HOST, 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(RendezvousExhaustedError, match="node rank 0 of 2 has not come"):
            node(HOST, port, 1, 2, timeout=timedelta(seconds=1)).next_rendezvous()


def test_an_address_of_another_machine_is_not_where_node_rank_0_can_be(node: Make) -> None:
    with pytest.raises(RendezvousConnectionError, match="check --node-rank and --master-addr"):
        node("192.0.2.1", 29500, 0, 2).next_rendezvous()


def test_the_place_of_another_job_is_refused(node: Make) -> None:
    port = free_port()
    waiting = join_later(node(HOST, port, 0, 2))
    with pytest.raises(RendezvousStateError, match=r"job 'r' of 2 nodes, and this agent .* job 'q' of 2"):
        node(HOST, port, 1, 2, run_id="q").next_rendezvous()
    join_later(node(HOST, port, 1, 2)).result(PATIENCE)
    waiting.result(PATIENCE)


@pytest.mark.parametrize("rank", [0, 1])
def test_shutdown_ends_a_wait_for_the_others(node: Make, rank: int) -> None:
    alone = node(HOST, free_port(), rank, 2)
    waiting = join_later(alone)
    with pytest.raises(TimeoutError):
        waiting.result(0.5)
    alone.shutdown()
    with pytest.raises(RendezvousGracefulExitError):
        waiting.result(PATIENCE)
    with pytest.raises(RendezvousGracefulExitError):
        alone.next_rendezvous()
