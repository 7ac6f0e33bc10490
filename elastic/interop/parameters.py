"""From what a foreign launcher asks of a rendezvous to what ours is asked. Takes values and gives values."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from elastic.rendezvous import RendezvousParameters

_PREFIX = "elastic-"

NAMES = (f"{_PREFIX}etcd", f"{_PREFIX}p10d")
"""Our backends' names in the other launchers, which have an ``etcd`` of their own."""

_NO_RUN_ID = ("", "none")

log = logging.getLogger("elastic.rendezvous")


class Asked(Protocol):
    """What the parameters of both launchers have."""

    backend: str
    endpoint: str
    run_id: str
    local_addr: str | None
    config: dict[str, Any]

    @property
    def min_nodes(self) -> int: ...

    @property
    def max_nodes(self) -> int: ...


def translate(asked: Asked, *, injected: Collection[str]) -> RendezvousParameters:
    """Our parameters for theirs. `injected` are settings that the launcher adds by itself: they are dropped.

    All other settings must be of `elastic.rendezvous.settings.KEYS`, as under our own launcher. ValueError
    where several nodes were given no name for their job: on a shared store they would meet other jobs.
    """
    config: Mapping[str, Any] = asked.config
    return RendezvousParameters(
        asked.backend.removeprefix(_PREFIX),
        asked.endpoint,
        _run_id(asked),
        asked.min_nodes,
        asked.max_nodes,
        asked.local_addr or None,
        **{key: value for key, value in config.items() if key not in injected},
    )


def _run_id(asked: Asked) -> str:
    if asked.run_id not in _NO_RUN_ID:
        return asked.run_id
    if asked.max_nodes > 1:
        raise ValueError(
            f"the rendezvous id is {asked.run_id!r}, and jobs on one store are told apart by it: name this "
            "job, the same on every node, as in --rdzv-id=my-job"
        )
    run_id = f"job-{uuid.uuid4().hex[:12]}"
    log.info("no rendezvous id was given: this job is %s", run_id)
    return run_id
