"""Fixtures for tests with nodes: closed after the test, with no thread of them left then."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.etcd import wait_until
from support.nodes import Node


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield

    def left() -> list[str]:
        return [t.name for t in threading.enumerate() if t not in before]

    wait_until(lambda: not left(), what="the end of every thread of the test")


@pytest.fixture
def run_id() -> str:
    return f"run-{uuid.uuid4().hex[:8]}"


def close_all(nodes: list[Node]) -> None:
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
    close_all(nodes)
