"""Another backend for a job whose etcd does not answer at its start: ``--rdzv-conf fallback=p10d,...``.

Off unless asked for. Each agent decides for itself, so some may find etcd and others not: that must not
make two worlds. It cannot where a world needs more than half of the nodes that the job may have; for other
jobs the fallback is refused. An agent that has begun on etcd stays with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from elastic.rendezvous.api import RendezvousParameters
from elastic.rendezvous.dynamic import DynamicRendezvousHandler
from elastic.rendezvous.settings import BELONGS, setting

from . import stores

BACKENDS = ("p10d", "c10d", "tcp")

log = logging.getLogger("elastic.rendezvous")


def fallback_of(params: RendezvousParameters) -> RendezvousParameters | None:
    """What to ask for where etcd does not answer; None where nothing is to be.

    ValueError, in one sentence, where it is incomplete, or could make two worlds. `params` are those of etcd.
    """
    backend, endpoint = setting(params, "fallback"), setting(params, "fallback_endpoint")
    if not backend and not endpoint:
        return None
    if not backend or not endpoint:
        missing = "fallback_endpoint" if backend else "fallback"
        raise ValueError(
            f"rendezvous setting {missing} is missing: fallback and fallback_endpoint go together"
        )
    if backend not in BACKENDS:
        raise ValueError(f"rendezvous setting fallback={backend!r} is none of {', '.join(BACKENDS)}")
    if 2 * params.min_nodes <= params.max_nodes:
        raise ValueError(
            f"fallback={backend} is refused with --nnodes={params.min_nodes}:{params.max_nodes}, as nodes "
            "that find etcd and nodes that do not could make two worlds: give a MIN of more than half of MAX"
        )
    # connect_timeout is how long etcd may be silent. The agent that runs the store may find that out later.
    foreign = {key for key, backends in BELONGS.items() if backend not in backends} | {"connect_timeout"}
    other = RendezvousParameters(
        backend,
        endpoint,
        params.run_id,
        params.min_nodes,
        params.max_nodes,
        local_addr=params.local_addr,
        **{key: value for key, value in params.config.items() if key not in foreign},
    )
    stores.endpoint_of(other)  # what is wrong with it is said while etcd answers, too
    return other


def fall_back(
    params: RendezvousParameters, env: Mapping[str, str], *, name: str, reason: str
) -> DynamicRendezvousHandler:
    """A handler on the other backend that goes by the `name` of the first. Raises as `stores.connect`."""
    log.warning(
        "etcd does not answer (%s): this agent goes on WITHOUT etcd, by %s at %s, as fallback=%s says; "
        "agents that find etcd wait for it in vain",
        reason,
        params.backend,
        params.endpoint,
        params.backend,
    )
    return stores.connect(params, env, name=name)
