"""Handlers in the shape of torch's, on the shared etcd; none of their threads may be left after a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.etcd import EtcdServer
from support.node_fixtures import no_thread_is_left, run_id

__all__ = ["no_thread_is_left", "run_id"]


@pytest.fixture
def torch_handler(etcd: EtcdServer, run_id: str) -> Iterator[Callable[..., Any]]:
    """Makes handlers as torch's registry does: (min_nodes, max_nodes, settings).

    `backend`, `endpoint` and `run_id` may be among the settings.
    """
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

    handlers: list[Any] = []

    def make(min_nodes: int, max_nodes: int, **conf: Any) -> Any:
        endpoint, run = conf.pop("endpoint", etcd.endpoint), conf.pop("run_id", run_id)
        backend = conf.pop("backend", "elastic-etcd")
        # Who is lost here says goodbye: a lease that ends is the machine's, that stood still for a while.
        settings = {"ttl": "20", "last_call_timeout": "30", "settle_timeout": "0.1", "timeout": 900, **conf}
        params = RendezvousParameters(backend, endpoint, run, min_nodes, max_nodes, None, **settings)
        handlers.append(get_rendezvous_handler(params))
        return handlers[-1]

    yield make
    for handler in handlers:
        handler.shutdown()
