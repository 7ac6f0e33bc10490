"""The steps of a rendezvous among the events of a job's life, as the peers' rendezvous events.

For handlers of ``dynamic_rendezvous``, and for what reads the peers' events there. Nothing is recorded here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from elastic.events.api import Event, NodeState, RdzvEvent

# With the states that both peers know.
_STEPS: Mapping[str, tuple[NodeState, str]] = {
    "elastic.node.joined": (NodeState.RUNNING, "node {node} has come"),
    "elastic.node.left": (NodeState.SUCCEEDED, "node {node} has left"),
    "elastic.node.lost": (NodeState.FAILED, "node {node} is lost"),
    "elastic.world.formed": (
        NodeState.RUNNING,
        "node {node} is in the world of round {round}, as rank {group_rank} of {group_world_size}",
    ),
    "elastic.world.superseded": (NodeState.RUNNING, "the world of round {round} is superseded"),
    "elastic.world.lost": (NodeState.FAILED, "node {node} takes no further part"),
    "elastic.lease.lost": (NodeState.RUNNING, "node {node} has lost its lease"),
    "elastic.lease.regained": (NodeState.RUNNING, "node {node} has a new lease"),
    "elastic.etcd.away": (NodeState.RUNNING, "the backend does not answer node {node}"),
    "elastic.etcd.back": (NodeState.RUNNING, "the backend answers node {node} again"),
    "elastic.job.ended": (NodeState.SUCCEEDED, "the job has ended"),
}


def rdzv_event(event: Event, *, pid: int) -> RdzvEvent | None:
    """The step of the rendezvous that an event of `elastic.events.job` tells of; None where it is none.

    `pid` is that of the agent. The step has the event's name; the message says what happened, and why.
    """
    if event.name not in _STEPS:
        return None
    about = event.metadata
    state, words = _STEPS[event.name]
    message = words.format_map({**json.loads(str(about["metadata"])), **about})
    cause, rank = about["cause"], about["group_rank"]
    return RdzvEvent(
        event.name,
        run_id=str(about["run_id"]),
        message=f"{message}: {cause}" if cause else message,
        hostname=str(about["hostname"]),
        pid=pid,
        node_state=NodeState.FAILED if about["state"] == "FAILED" else state,
        rank=rank if isinstance(rank, int) else None,
    )
