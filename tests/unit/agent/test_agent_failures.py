"""A failure on its way to the other nodes and into their reports: nothing a person needs is lost."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

from elastic.agent.server.failures import MOST_BYTES, FailureLog, describe, failure_to_start, heard, told
from elastic.agent.server.restarts import RestartPolicy
from elastic.multiprocessing import ProcessFailure
from elastic.multiprocessing.errors import ChildFailedError
from elastic.rendezvous import Failure, Outcome, Terminal

TRACE = ("Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: bad batch")


def failure(exitcode: int = 1, **fields: object) -> ProcessFailure:
    return ProcessFailure(local_rank=1, pid=4711, exitcode=exitcode, **fields)  # type: ignore[arg-type]


def tell(process: ProcessFailure) -> Failure:
    return told(5, process, round_number=2, hostname="b", message="it failed", final=False)


def test_a_sentence_names_worker_host_code_and_exception() -> None:
    text = describe(5, failure(stderr_tail=TRACE), hostname="b")
    assert text == "worker 5 (local rank 1 on b) failed with exit code 1: ValueError: bad batch"
    assert describe(0, failure(-signal.SIGSEGV), hostname="b").endswith("signal 11 (SIGSEGV)")
    assert len(describe(0, failure(stderr_tail=("E" * 9999 + "Error: x",)), hostname="b")) < 300


def test_what_another_node_reads_is_what_this_one_saw() -> None:
    process = failure(
        -signal.SIGKILL, stderr_tail=("one", "two"), hint="out of memory", log="/logs/1", timestamp=1718000000
    )
    there = heard(tell(process))
    assert (there.exitcode, there.pid, there.local_rank) == (-signal.SIGKILL, 4711, 1)
    assert (there.stderr_tail, there.hint, there.log) == (("one", "two"), "out of memory", "/logs/1")
    assert (there.host, there.timestamp, there.message) == ("b", 1718000000, process.message)


def test_a_traceback_reaches_the_other_nodes(tmp_path: Path) -> None:
    process = failure(message="ValueError: x", traceback="\n".join(TRACE), error_file=str(tmp_path / "none"))
    report = str(ChildFailedError("train.py", {5: heard(tell(process))}))
    for line in TRACE:
        assert line in report
    assert "host      : b" in report
    assert "error_file: <N/A>" in report, "it was never written"


def test_texts_are_cut_to_their_end_on_whole_lines() -> None:
    lines = tuple(f"line {number} " + "é" * 100 for number in range(200))
    there = tell(failure(stderr_tail=lines))
    assert len(there.stderr.encode()) <= MOST_BYTES
    assert there.stderr.splitlines() == list(lines[-len(there.stderr.splitlines()) :])
    one = tell(failure(stderr_tail=("é" * MOST_BYTES,)))
    assert 0 < len(one.stderr.encode()) <= MOST_BYTES


def test_what_is_no_text_is_made_one() -> None:
    there = tell(failure(message="\ud800 broken", traceback="\udcff"))
    assert there.error.isascii()
    there.traceback.encode()


def log_of(*failures: ProcessFailure, max_restarts: int = 3) -> FailureLog:
    log = FailureLog(RestartPolicy(same_failures=2), max_restarts=max_restarts)
    log.failures = dict(enumerate(failures, 4))
    return log


def test_the_last_one_says_that_it_is() -> None:
    spent = log_of(failure(), max_restarts=1).note(2, job_failures=1, ran=1)
    assert spent.final
    assert "--max-restarts=1 allows no further restart" in spent.message
    log = log_of(failure())
    assert not log.note(1, job_failures=0, ran=1).final
    hopeless = log.note(2, job_failures=1, ran=1)
    assert hopeless.final
    assert "--max-same-failures" in hopeless.message
    assert log.count == 2


def ended(by: Failure | None) -> Terminal:
    return Terminal(
        outcome=Outcome.FAILED,
        reason="so",
        exit_code=3,
        incarnation=1,
        round=2,
        node_id="n",
        failure=by,
    )


def test_the_leaders_first_failure_is_first_in_every_report() -> None:
    """Whatever was observed here before it, and whatever the clocks say."""
    first = told(
        9, failure(3, timestamp=2_000_000_000), round_number=2, hostname="b", message="m", final=True
    )
    log = log_of(failure(timestamp=1, observed=1.0))
    log.victims = {5: failure(-15, victim=True, observed=0.5)}
    result = log.ending(ended(first), round_number=2)
    error = ChildFailedError("x", result.victims | result.failures)
    assert error.get_first_failure()[0] == 9
    assert (set(result.failures), set(result.victims), result.exit_code) == ({4, 9}, {5}, 3)
    assert "Stopped because of it: rank 5 (SIGTERM)" in str(error)


def test_failures_of_another_round_are_left_out() -> None:
    first = told(4, failure(3), round_number=3, hostname="b", message="m", final=True)
    result = log_of(failure(1)).ending(ended(first), round_number=2)
    assert {rank: each.host for rank, each in result.failures.items()} == {4: "b"}


def test_an_end_without_a_failure_has_none() -> None:
    result = log_of(failure()).ending(ended(None), round_number=2)
    assert (result.failures, result.exit_code) == ({}, 3)


def test_long_work_ends_a_row_of_failures_also_where_it_ended_well() -> None:
    same = ProcessFailure(local_rank=0, pid=7, exitcode=3, observed=1.0)
    log = log_of(same, max_restarts=9)
    log.note(7, job_failures=0, ran=1.0)
    log.stopped(ran=3 * 86400.0)
    assert not log.note(8, job_failures=1, ran=1.0).final
    assert log.note(9, job_failures=2, ran=1.0).final, "two in a row"


def test_workers_that_cannot_be_started_have_the_code_of_a_shell() -> None:
    codes = {errno.ENOENT: 127, errno.EACCES: 126, errno.EMFILE: 126}
    for number, code in codes.items():
        (failed,) = failure_to_start(OSError(number, os.strerror(number)), rank=4).values()
        assert (failed.exitcode, "ulimit -n" in failed.hint) == (code, number == errno.EMFILE)
        assert failed.message.startswith("the workers cannot be started: ")
