"""Why the workers of a node are started anew though none of them failed, in a word of the metrics. Pure."""

from __future__ import annotations

from elastic.metrics.snapshot import RestartCause
from elastic.rendezvous.core.records import Round, Trigger

_CAUSES = {
    Trigger.FAILURE: RestartCause.PEER_FAILED,
    Trigger.LOST: RestartCause.NODE_LOST,
    Trigger.LEFT: RestartCause.NODE_LEFT,
    Trigger.REPLACED: RestartCause.NODE_LEFT,
    Trigger.ARRIVAL: RestartCause.NODE_JOINED,
    Trigger.REQUEST: RestartCause.REQUESTED,
}


def cause_of_round(newest: Round | None, *, current: int, node_id: str) -> RestartCause:
    """Why a node that was in round `current` is to join another; `newest` is the last that it heard of."""
    if newest is None or newest.round <= current:
        return RestartCause.OTHER
    if newest.rank_of(node_id) is None:
        return RestartCause.LEASE_LOST
    return _CAUSES.get(newest.trigger, RestartCause.OTHER)


def cause_of_first(*, waiting: int, leaving: int) -> RestartCause:
    """Why a node is the first to end a round: so many nodes wait to be let in, so many are about to leave."""
    if waiting:
        return RestartCause.NODE_JOINED
    return RestartCause.NODE_LEFT if leaving else RestartCause.REQUESTED
