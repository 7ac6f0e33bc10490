"""Nodes on the shared etcd, closed after the test; nothing of them may be left then."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.etcd import EtcdServer, wait_until
from support.nodes import Node, NodeProcess


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield

    def left() -> list[str]:
        return [t.name for t in threading.enumerate() if t not in before]

    wait_until(lambda: not left(), what="the end of every thread of the test")


@pytest.fixture
def run_id() -> str:
    return f"run-{uuid.uuid4().hex[:8]}"


def _close_all(nodes: list[Node]) -> None:
    if nodes:
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(Node.close, nodes))


@pytest.fixture
def node_of() -> Iterator[Callable[..., Node]]:
    """Makes nodes: (endpoint, run id, nnodes, settings)."""
    nodes: list[Node] = []

    def make(endpoint: str, run: str, nnodes: str, **conf: Any) -> Node:
        nodes.append(Node(endpoint, run, nnodes, **conf))
        return nodes[-1]

    yield make
    _close_all(nodes)


@pytest.fixture
def node(etcd: EtcdServer, run_id: str, node_of: Callable[..., Node]) -> Callable[..., Node]:
    """Makes nodes of this test's run on the shared server: (nnodes, settings)."""

    def make(nnodes: str, **conf: Any) -> Node:
        return node_of(etcd.endpoint, conf.pop("run", run_id), nnodes, **conf)

    return make


@pytest.fixture
def process_of() -> Iterator[Callable[..., NodeProcess]]:
    """Makes node processes: (endpoint, run id, nnodes, settings)."""
    processes: list[NodeProcess] = []

    def make(endpoint: str, run: str, nnodes: str, **conf: Any) -> NodeProcess:
        processes.append(NodeProcess(endpoint, run, nnodes, **conf))
        return processes[-1]

    yield make
    for process in processes:
        process.close()
