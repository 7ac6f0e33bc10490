"""Nodes that meet over a plain store, closed after the test; nothing of them may be left then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.etcd import free_port
from support.node_fixtures import no_thread_is_left, node_of, run_id
from support.nodes import Node, NodeProcess

__all__ = ["endpoint", "no_thread_is_left", "node", "node_of", "process", "run_id"]


@pytest.fixture
def endpoint() -> str:
    """Where a store may be run."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def node(endpoint: str, run_id: str, node_of: Callable[..., Node]) -> Callable[..., Node]:
    """Makes nodes of this test's run at its endpoint: (nnodes, settings); `backend` is tcp unless given."""

    def make(nnodes: str, **conf: Any) -> Node:
        place = conf.pop("endpoint", endpoint)
        return node_of(str(place), conf.pop("run", run_id), nnodes, **{"backend": "tcp", "ttl": 2, **conf})

    return make


@pytest.fixture
def process(endpoint: str, run_id: str) -> Iterator[Callable[..., NodeProcess]]:
    """The same in processes of their own, which can be killed."""
    processes: list[NodeProcess] = []

    def make(nnodes: str, **conf: Any) -> NodeProcess:
        place = conf.pop("endpoint", endpoint)
        processes.append(NodeProcess(str(place), run_id, nnodes, **{"backend": "tcp", "ttl": 2, **conf}))
        return processes[-1]

    yield make
    for each in processes:
        each.close()


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A file that all nodes share."""
    return tmp_path / "store"
