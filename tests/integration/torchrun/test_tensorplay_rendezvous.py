"""tensorplay's own launcher on our rendezvous, by its Python interface, and the shape that its agent sees."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.etcd import EtcdServer, wait_until
from support.job import Agent
from support.torchrun import TorchrunJob, lose, wait_for_world

pytestmark = [pytest.mark.tensorplay, pytest.mark.timeout(300)]

LAUNCH = """
import json, sys
from elastic.interop.tensorplay import register
from tensorplay.distributed.launcher import LaunchConfig, elastic_launch

if __name__ == "__main__":
    register()
    endpoint, run_id, name, *command = sys.argv[1:]
    conf = {"ttl": "2", "last_call_timeout": "4", "settle_timeout": "0.2", "node_name": name}
    config = LaunchConfig(1, 2, rdzv_backend="elastic-etcd", rdzv_endpoint=endpoint, run_id=run_id,
                          rdzv_configs=conf, rdzv_timeout=60)
    elastic_launch(config, sys.executable)(*command)
"""


def test_nodes_come_and_go(etcd: EtcdServer, tmp_path: Path) -> None:
    (tmp_path / "launch.py").write_text(LAUNCH)
    with TorchrunJob(etcd.endpoint, tmp_path, nodes="1:2") as job:

        def start(name: str) -> Agent:
            argv = [etcd.endpoint, job.run_id, name, *job.worker]
            job.agents.append(Agent(name, argv, directory=tmp_path, env={}, module="launch"))
            return job.agents[-1]

        a, b = start("a"), start("b")
        first = wait_for_world([a, b], 2)
        lose(b)
        second = wait_for_world([a], 1, not_port=first)
        c = start("c")
        third = wait_for_world([a, c], 2, not_port=second)
        c.send(signal.SIGTERM)  # under its own backends this would close the rendezvous for everybody
        fourth = wait_for_world([a], 1, not_port=third)
        d = start("d")
        wait_for_world([a, d], 2, not_port=fourth)
        job.finish()
        assert [a.wait(), d.wait()] == [0, 0]
        assert {place["restarts"] for agent in job.agents for place in agent.places()} == {0}


@pytest.fixture
def handler(etcd: EtcdServer, run_id: str) -> Iterator[Callable[..., Any]]:
    """Makes handlers as tensorplay's launcher does: (min_nodes, max_nodes, settings)."""
    from tensorplay.distributed.elastic.rendezvous.api import RendezvousParameters, create_handler

    from elastic.interop.tensorplay import register

    register()
    register()  # it may be called again
    handlers: list[Any] = []

    def make(min_nodes: int, max_nodes: int, **conf: Any) -> Any:
        config = {"ttl": "20", "min_nodes": min_nodes, "max_nodes": max_nodes, **conf}
        params = RendezvousParameters(
            backend="elastic-etcd", endpoint=etcd.endpoint, run_id=run_id, local_world_size=2, config=config
        )
        handlers.append(create_handler(params))
        return handlers[-1]

    yield make
    for made in handlers:
        made.shutdown()


def test_a_world_and_its_end(handler: Callable[..., Any]) -> None:
    from tensorplay.distributed.elastic.rendezvous.api import RendezvousGracefulExitError
    from tensorplay.distributed.elastic.utils.store import barrier, synchronize

    from elastic.interop.tensorplay import EXIT_BARRIER

    def live(made: Any) -> tuple[Any, list[bytes]]:
        info = made.next_rendezvous()
        values = synchronize(info.store, b"%d" % info.rank, info.rank, 2, "key/", 30)
        with barrier(info.store, 2, f"{EXIT_BARRIER}/worker", 30):
            return info, values

    with ThreadPoolExecutor(3) as pool:
        lives = [pool.submit(live, handler(2, 2)) for _ in range(2)]
        infos, values = zip(*(life.result(60) for life in lives), strict=True)
    assert values == ([b"0", b"1"], [b"0", b"1"])
    assert {info.bootstrap_store_info.port for info in infos} == {infos[0].bootstrap_store_info.master_port}
    assert [member.local_world_size for member in infos[0].participants] == [2, 2]
    member = handler(2, 2)
    wait_until(member.is_closed)
    member.shutdown()
    with pytest.raises(RendezvousGracefulExitError):
        member.next_rendezvous()


def test_the_store(handler: Callable[..., Any]) -> None:
    from tensorplay.distributed import StoreTimeoutError

    store = handler(1, 1).next_rendezvous().store
    store.set("a", "1")
    assert (store.get("a"), store.has("a"), store.has("b")) == (b"1", True, False)
    assert (store.add("n", 2), store.add("n", 3)) == (2, 5)
    assert store.compare_set("c", "", "1") == b"1"
    assert store.compare_and_swap("c", b"2", b"3") == (False, b"1")
    assert store.compare_and_swap("c", b"1", b"2") == (True, b"2")
    store.delete_key("a")
    assert store.wait(["c", "n"], timeout=1)
    with pytest.raises(StoreTimeoutError, match=r"not set within 0\.2 s: 'a'"):
        store.get("a", timeout=0.2)
    store.timeout = 0.2
    with pytest.raises(StoreTimeoutError, match=r"not set within 0\.2 s: 'a'"):
        store.wait(["a"])


def test_errors(handler: Callable[..., Any]) -> None:
    from tensorplay.distributed.elastic.rendezvous.api import RendezvousTimeoutError

    with pytest.raises(ValueError, match="unknown rendezvous setting 'no_such'"):
        handler(1, 1, no_such="1")
    with pytest.raises(RendezvousTimeoutError, match=r"no world within 1 s \(join_timeout\)"):
        handler(2, 2, join_timeout="1").next_rendezvous()


def test_the_exit_barrier_has_the_keys_that_we_know() -> None:
    from tensorplay.distributed.elastic.agent.server import api

    from elastic.interop.tensorplay import EXIT_BARRIER

    assert api._TERMINAL_STATE_SYNC_ID == EXIT_BARRIER
