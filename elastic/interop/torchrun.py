"""The rendezvous for torchrun, unmodified::

    torchrun --nnodes=1:3 --rdzv-backend=elastic-etcd --rdzv-endpoint=HOST:2379 --rdzv-id=JOB train.py

``elastic-p10d`` is the same over a store that one of the agents hosts. torch finds `creator` by the entry
point group ``torchrun.handlers`` when its rendezvous package is imported, so loading this module must be
cheap: the client of a backend is loaded only when a handler is made. The launcher's decisions stay its
own; this adapts what it knows, the common interface and six errors.
"""

from __future__ import annotations

import logging
import socket
import sys
import weakref
from collections.abc import Callable

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import api as torch_api

from elastic.rendezvous import Failure, RendezvousError

from .errors import raised_as
from .parameters import translate
from .participant import Participant, ended_well
from .torch_store import AgentStore

log = logging.getLogger("elastic.rendezvous")

_INJECTED = frozenset({"rank"})
"""What launchers add to the settings by themselves, and has no meaning here: ranks are agreed on.

They add ``timeout`` (900) as well, which is another name of ``join_timeout``.
"""

_MOST_HEADLINE = 200


def creator() -> Callable[[torch_api.RendezvousParameters], TorchRendezvous]:
    """What torch's plug-in group asks for: the function that makes handlers."""
    return create


def create(params: torch_api.RendezvousParameters) -> TorchRendezvous:
    """A handler for torch's agent.

    ValueError for wrong settings, and torch's RendezvousConnectionError where the store cannot be used.
    """
    ours = translate(params, injected=_INJECTED)
    with raised_as(torch_api):
        return TorchRendezvous(Participant.create(ours), name=params.backend)


class TorchRendezvous(torch_api.RendezvousHandler):  # type: ignore[misc]
    """Our rendezvous behind torch's interface.

    torchrun does not call `shutdown` when a signal ends it. The goodbye is then said when the
    interpreter exits, or when the handler is collected, whichever is first; only a killed process
    has to be missed by its lease.
    """

    def __init__(self, participant: Participant, *, name: str) -> None:
        """Owns the participant. `name` is the one that torch was asked for."""
        self._participant = participant
        self._name = name
        self._goodbye = weakref.finalize(self, participant.leave)

    def get_backend(self) -> str:
        return self._name

    @property
    def use_agent_store(self) -> bool:
        """False: workers bootstrap from MASTER_ADDR and MASTER_PORT, which rank 0 of the round listens on."""
        return False

    def next_rendezvous(self) -> torch_api.RendezvousInfo:
        """Block until this node is in a new world; raises torch's errors.

        SystemExit with code 0 where the job has succeeded without this node: torch's own way for that,
        RendezvousGracefulExitError, ends its launcher in an AttributeError and code 1 (torch 2.13).
        """
        try:
            with raised_as(torch_api):
                joined = self._participant.join()
        except (torch_api.RendezvousGracefulExitError, torch_api.RendezvousClosedError) as e:
            if isinstance(e.__cause__, RendezvousError) and ended_well(e.__cause__):
                log.warning("nothing is left to do for this node: %s", e)
                raise SystemExit(0) from e
            raise
        info = joined.info
        return torch_api.RendezvousInfo(
            AgentStore(joined.store, self._participant),
            info.rank,
            info.world_size,
            torch_api.RendezvousStoreInfo(
                info.bootstrap_store_info.master_addr, info.bootstrap_store_info.master_port
            ),
        )

    def num_nodes_waiting(self) -> int:
        """How many nodes wait; at least 1 where the world is over, so that the agent starts anew."""
        return self._participant.nodes_waiting()

    def is_closed(self) -> bool:
        with raised_as(torch_api):
            return self._participant.handler.is_closed()

    def set_closed(self) -> None:
        with raised_as(torch_api):
            self._participant.handler.set_closed()

    def get_run_id(self) -> str:
        return self._participant.handler.get_run_id()

    def shutdown(self) -> bool:
        """Leave; and end the job where this is called because workers have failed for good.

        torch's launcher calls it on its way out with the error that it raises, and has no other word for
        the two ways of leaving.
        """
        error = sys.exc_info()[1]
        if isinstance(error, ChildFailedError):
            self._participant.fail(_told(error, self._participant.round))
        self._goodbye.detach()
        return self._participant.leave()


def _told(error: ChildFailedError, round_number: int) -> Failure:
    """The failure as the other nodes are told of it."""
    rank, first = error.get_first_failure()
    code, hostname = int(first.exitcode), socket.gethostname()
    how = f"signal {-code} ({first.signal_name()})" if code < 0 else f"exit code {code}"
    message = f"worker {rank} (local rank {first.local_rank} on {hostname}) failed with {how}"
    recorded = first.error_file_data.get("message")
    if isinstance(recorded, dict) and recorded.get("message"):
        message = f"{message}: {str(recorded['message'])[:_MOST_HEADLINE]}"
    return Failure(
        round=round_number,
        rank=rank,
        local_rank=first.local_rank,
        exit_code=code if code >= 0 else 128 - code,
        message=message,
        final=True,
        hostname=hostname,
        pid=first.pid,
        signal=max(0, -code),
    )
