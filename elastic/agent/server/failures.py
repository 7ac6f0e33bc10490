"""The failures of an agent's workers: counted, told to the other nodes, and reported at the end.

It decides nothing but whether a failure is the last one that this node will survive, and reads nothing but
the error file of a local worker. A record in the shared state is small: texts are cut, at their beginning, to
what a person needs at the end of a job.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Mapping
from dataclasses import replace

from elastic.multiprocessing import ProcessFailure, exit_code_for
from elastic.multiprocessing.errors.failures import sort_by_cause
from elastic.rendezvous import Failure, Terminal

from .restarts import RestartPolicy, Streak
from .spec import RunResult, WorkerGroup, WorkerState

MOST_BYTES = 4096
"""Of each text that is told to the other nodes."""

MOST_HEADLINE = 200
"""Characters of the exception in the sentence that every node logs."""

STUCK = 124
"""The exit code of a worker that runs and counts as failed: what timeout(1) uses."""

_FIRST_OF_ALL = float("-inf")  # what the leader found to be first comes before all that was observed here


def describe(rank: int, failure: ProcessFailure, *, hostname: str) -> str:
    """One sentence on which worker failed, and how."""
    worker = f"worker {rank} (local rank {failure.local_rank} on {hostname})"
    if not failure.pid:
        return failure.message
    if failure.exitcode == STUCK and not failure.error_file_data:
        return f"{worker} counts as failed: {failure.message}"
    how = f"exit code {failure.exitcode}"
    if failure.exitcode < 0:
        how = f"signal {-failure.exitcode} ({failure.signal_name()})"
    sentence = f"{worker} failed with {how}"
    exception = failure.exception()
    if len(exception) > MOST_HEADLINE:
        exception = exception[: MOST_HEADLINE - 3] + "..."
    return f"{sentence}: {exception}" if exception else sentence


def told(
    rank: int, failure: ProcessFailure, *, round_number: int, hostname: str, message: str, final: bool
) -> Failure:
    """The failure as the other nodes are told of it."""
    return Failure(
        round=round_number,
        rank=max(rank, 0),
        local_rank=failure.local_rank,
        exit_code=exit_code_for(failure),
        message=_cut(message),
        final=final,
        hostname=hostname,
        pid=failure.pid,
        signal=max(-failure.exitcode, 0),
        error=_cut(failure.message),
        traceback=_cut(failure.traceback),
        stderr=_cut("\n".join(failure.stderr_tail)),
        hint=failure.hint,
        log=failure.log,
        error_file=failure.error_file,
        time=max(failure.timestamp, 0),
    )


def heard(failure: Failure) -> ProcessFailure:
    """The failure of another node, as its record tells of it."""
    return ProcessFailure(
        local_rank=failure.local_rank,
        pid=failure.pid,
        exitcode=-failure.signal or failure.exit_code,
        error_file=failure.error_file,
        message=failure.error or failure.message,
        timestamp=failure.time,
        traceback=failure.traceback,
        stderr_tail=tuple(failure.stderr.splitlines()),
        host=failure.hostname or "another node",
        hint=failure.hint,
        log=failure.log,
    )


def _cut(text: str) -> str:
    """The end of a text, of whole lines where there are several; valid where a worker wrote nonsense."""
    data = text.encode("utf-8", "replace")
    if len(data) > MOST_BYTES:
        data = data[-MOST_BYTES:]
        _, newline, rest = data.partition(b"\n")
        data = rest if newline and rest else data
    return data.decode("utf-8", "ignore")


def failure_to_start(error: OSError, *, rank: int) -> dict[int, ProcessFailure]:
    """Workers that cannot be started: as one that failed, with the code that a shell would give it."""
    code = 127 if isinstance(error, FileNotFoundError) else 126
    message = f"the workers cannot be started: {error}"
    hint = "raise the limit on open files (ulimit -n)" if error.errno == errno.EMFILE else ""
    return {rank: ProcessFailure(local_rank=0, pid=0, exitcode=code, message=message, hint=hint)}


def stuck(group: WorkerGroup, reasons: Mapping[int, str]) -> dict[int, ProcessFailure]:
    """Workers that run, and count as failed for the given reasons (by local rank), by global rank."""
    now = time.monotonic()
    return {
        worker.global_rank: ProcessFailure(
            local_rank=worker.local_rank,
            pid=worker.id or 0,
            exitcode=STUCK,
            message=reasons[worker.local_rank],
            observed=now,
        )
        for worker in group.workers
        if worker.local_rank in reasons
    }


class FailureLog:
    """What went wrong with the workers of this node in the current round, and how often before.

    `failures` are those that failed by themselves and `victims` those that the agent stopped, by global rank.
    """

    def __init__(self, policy: RestartPolicy, *, max_restarts: int) -> None:
        self.policy = policy
        self.streak = Streak()
        self.count = 0
        """How many times a worker of this node failed, over all rounds."""
        self.failures: dict[int, ProcessFailure] = {}
        self.victims: dict[int, ProcessFailure] = {}
        self._max_restarts = max_restarts

    def begin(self) -> None:
        """A new round begins."""
        self.failures, self.victims = {}, {}

    def stopped(self, *, ran: float) -> None:
        """The workers are stopped, for another reason than a failure, after so many seconds."""
        if ran >= self.policy.progress_after:
            self.streak = Streak()

    def note(self, round_number: int, *, job_failures: int, ran: float) -> Failure:
        """Count the failure that came first here, and return it as the others are to be told of it.

        `job_failures` is how many the job had before, and `ran` for how many seconds the workers had run.
        """
        rank, process = sort_by_cause(self.failures)[0]
        hostname = socket.gethostname()
        self.count += 1
        self.streak = self.streak.after(process, ran=ran, policy=self.policy)
        message = describe(rank, process, hostname=hostname)
        spent = job_failures >= self._max_restarts
        hopeless = not spent and self.streak.is_hopeless(self.policy)
        if spent:
            message += f"; --max-restarts={self._max_restarts} allows no further restart"
        elif hopeless:
            message += (
                f"; it is the same failure {self.streak.equal} times in a row, with less than "
                f"{self.policy.progress_after:g} s between: another restart would not help "
                "(--max-same-failures)"
            )
        return told(
            rank,
            process,
            round_number=round_number,
            hostname=hostname,
            message=message,
            final=spent or hopeless,
        )

    def ending(self, terminal: Terminal, *, round_number: int) -> RunResult:
        """How the run ends on this node by the record of a job that did not succeed.

        Every node shows the failure that ended the job, and beside it what happened here in the same round.
        """
        failure = terminal.failure
        failures: dict[int, ProcessFailure] = {}
        victims: dict[int, ProcessFailure] = {}
        if failure is not None:
            if failure.round == round_number:
                failures, victims = dict(self.failures), self.victims
            root = failures.get(failure.rank) or heard(failure)
            failures[failure.rank] = replace(root, observed=_FIRST_OF_ALL)
        return RunResult(
            WorkerState.FAILED,
            failures=failures,
            victims=victims,
            exit_code=terminal.exit_code or 1,
            reason=f"the job has ended: {terminal.reason}",
        )
