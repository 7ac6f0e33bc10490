"""What an agent does next, from what it sees. Pure.

==============  ==============================  ===================================================
phase           what is seen                    what follows
==============  ==============================  ===================================================
RUNNING         an order to leave               tell the others, and give the workers notice; without one to
                                                give, leave, stop the workers, end (a signal: with 128 + n)
NOTICE          the same, and nobody waits for  leave, stop the workers, end
                workers that save any more
BARRIER         an order to leave               leave, end
RUNNING         the job is closed               stop the workers, end as it says
any             this node is evicted            stop the workers, end
any             the backend is away too long    stop the workers, end
RUNNING         a worker failed                 say so, stop the rest, join the next round
RUNNING         a newer round                   stop the workers, join it
RUNNING         all workers succeeded           say so, wait for the other nodes
RUNNING         nodes wait to be let in         give the workers notice; without one to give, regroup
RUNNING         a member will leave             give the workers notice; without one to give, nothing
NOTICE          all are ready, or time is over  stop the workers, join the next round with those who wait
NOTICE          anything else                   as when RUNNING; but once a worker has acknowledged, how
                                                workers end means nothing any more
BARRIER         the job is closed               end as it says
BARRIER         a newer round                   join it: the job is not done without this node
BARRIER         the wait is over                end; this node's part is done
==============  ==============================  ===================================================

Notice is given so that workers can save what they have. Once it is given the world is formed anew even if
those who waited are gone again: a worker that has acknowledged does no more work.

While the rendezvous backend is away none of it is seen, so the workers run on. Whether a failure
ends the job is not decided here: the leader decides that when it has heard of every other node,
since a worker that lost its peers fails as well. A handler that cannot tell (one that has only the
common interface) leaves the decision to the agent's own count.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from elastic.rendezvous import RendezvousStatus, Standing

from .spec import WorkerState


class Phase(enum.Enum):
    """What the agent is doing. It decides in RUNNING, NOTICE and BARRIER; the others end by themselves."""

    JOINING = "it waits for a world"
    RUNNING = "workers run"
    NOTICE = "workers were told that they will be stopped, and may save"
    STOPPING = "workers are being stopped"
    PAUSING = "workers are stopped, and it is too early to start them again"
    BARRIER = "its workers are done, and it waits for the other nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the agent sees.

    `orders`: how many times it was told to leave. `is_overdue`: the time for its phase is over.
    `gives_notice`: workers get a notice before they are stopped for a newcomer or a departure.
    `acknowledged`: one of them has answered it; `all_acknowledged`: each has, or has ended.
    """

    phase: Phase
    workers: WorkerState
    status: RendezvousStatus
    orders: int = 0
    failures: int = 0
    max_restarts: int = 0
    shares_failures: bool = True
    is_overdue: bool = False
    gives_notice: bool = False
    acknowledged: bool = False
    all_acknowledged: bool = False

    @property
    def ready_to_stop(self) -> bool:
        """Whether nobody waits for workers that save any more."""
        return self.all_acknowledged or self.is_overdue


class Move(enum.Enum):
    """What to do."""

    STAY = "nothing"
    LEAVE = "tell the others, stop the workers and end"
    END = "stop the workers and end as the terminal record says"
    FAIL = "stop the workers and end: the restart budget is spent"
    RETRY = "say that a worker failed, stop the others and join the next round"
    NOTIFY = "tell the workers that they will be stopped soon"
    DRAIN = "the same, and tell the other nodes that this one will leave"
    REGROUP = "stop the workers and join the next round"
    SUCCEED = "say that all workers succeeded, and wait for the other nodes"
    FINISH = "end: this node's part is done"


@dataclass(frozen=True, slots=True)
class Decision:
    move: Move
    why: str = ""


def decide(scene: Scene) -> Decision:
    """The agent's next move."""
    status = scene.status
    if scene.orders:
        return _ordered_out(scene)
    if status.standing in (Standing.CLOSED, Standing.EVICTED, Standing.LOST):
        return Decision(Move.END, status.reason)
    if scene.phase is Phase.BARRIER:
        if status.standing is Standing.SUPERSEDED:
            return Decision(Move.REGROUP, status.reason)
        return Decision(Move.FINISH if scene.is_overdue else Move.STAY)
    told = scene.phase is Phase.NOTICE
    answered = told and scene.acknowledged
    if scene.workers is WorkerState.FAILED and not answered:
        spent = scene.failures >= scene.max_restarts
        return Decision(Move.FAIL if spent and not scene.shares_failures else Move.RETRY)
    if status.standing is Standing.SUPERSEDED:
        return Decision(Move.REGROUP, status.reason)
    if scene.workers is WorkerState.SUCCEEDED and not answered:
        return Decision(Move.SUCCEED)
    if told:
        return Decision(Move.REGROUP, "workers had notice") if scene.ready_to_stop else Decision(Move.STAY)
    if status.nodes_waiting > 0:
        move = Move.NOTIFY if scene.gives_notice else Move.REGROUP
        return Decision(move, f"{status.nodes_waiting} waiting")
    if status.nodes_leaving > 0 and scene.gives_notice:
        return Decision(Move.NOTIFY, f"{status.nodes_leaving} leaving")
    return Decision(Move.STAY)


def _ordered_out(scene: Scene) -> Decision:
    """The first order lets workers that are well save, where they are told; another one hurries."""
    well = scene.workers is WorkerState.HEALTHY and scene.status.standing is Standing.CURRENT
    if well and scene.gives_notice and scene.orders == 1:
        if scene.phase is Phase.RUNNING:
            return Decision(Move.DRAIN, "this node leaves")
        if scene.phase is Phase.NOTICE and not scene.ready_to_stop:
            return Decision(Move.STAY)
    return Decision(Move.LEAVE)
