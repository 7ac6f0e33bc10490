"""Nodes on the shared etcd, closed after the test; nothing of them may be left then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.etcd import EtcdServer
from support.node_fixtures import no_thread_is_left, node_of, run_id
from support.nodes import Node, NodeProcess

__all__ = ["no_thread_is_left", "node", "node_of", "process_of", "run_id"]


@pytest.fixture
def node(etcd: EtcdServer, run_id: str, node_of: Callable[..., Node]) -> Callable[..., Node]:
    """Makes nodes of this test's run on the shared server: (nnodes, settings)."""

    def make(nnodes: str, **conf: Any) -> Node:
        # Nobody is lost because this process stood still for a while.
        settings = {"ttl": 20, **conf}
        return node_of(etcd.endpoint, settings.pop("run", run_id), nnodes, **settings)

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
