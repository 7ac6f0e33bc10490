"""How an agent's run ends, and with which result or error. It decides nothing else."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass

from elastic.multiprocessing import SignalException
from elastic.multiprocessing.signals import signal_name
from elastic.rendezvous import (
    Failure,
    Outcome,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousStateError,
    RendezvousStatus,
    Standing,
    Terminal,
)

from .failures import FailureLog
from .spec import RunResult, WorkerState
from .waiting import Orders

log = logging.getLogger("elastic.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This node's own part: its failures, its last round, and its result should the job succeed."""

    failures: FailureLog
    round: int
    succeeded: RunResult


def without_world(error: BaseException, here: Here) -> RunResult:
    """There is no world for this node; raises `error` where that is no good end."""
    if isinstance(error, RendezvousGracefulExitError):
        log.info("%s", error)
        return RunResult(WorkerState.SUCCEEDED, reason=str(error))
    if isinstance(error, RendezvousClosedError) and error.terminal is not None:
        log.info("%s", error)
        return by_record(error.terminal, here)
    raise error


def by_status(status: RendezvousStatus, why: str, here: Here) -> RunResult:
    """The job is over for this node, or this node for the job."""
    if status.terminal is not None:
        return by_record(status.terminal, here)
    if status.standing is Standing.LOST:
        raise RendezvousConnectionError(f"this node gave up: {why}")
    raise RendezvousStateError(f"this node may take no further part: {why}")


def by_record(terminal: Terminal, here: Here) -> RunResult:
    """What the job's terminal record means for this node."""
    if terminal.outcome is Outcome.SUCCEEDED:
        return here.succeeded
    return here.failures.ending(terminal, round_number=here.round)


def budget_spent(failure: Failure, here: Here) -> RunResult:
    """This node's failure was the last that the job survives, by this node's own count."""
    return RunResult(
        WorkerState.FAILED,
        failures=here.failures.failures,
        victims=here.failures.victims,
        exit_code=failure.exit_code,
        reason=failure.message,
    )


def ordered_out(orders: Orders) -> RunResult:
    """This node was told to leave, by `stop` or, which raises SignalException, by a signal."""
    received = orders.signals.received
    if not received:
        return RunResult(WorkerState.STOPPED, reason="stop() was called")
    number = received[0]
    raise SignalException(f"received {signal_name(number)}", sigval=signal.Signals(number))
