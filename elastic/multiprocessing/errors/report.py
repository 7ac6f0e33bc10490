"""The report of a failed worker group: text made from values. Pure apart from this host's name."""

import socket
from collections.abc import Mapping

from elastic.multiprocessing.errors.failures import ProcessFailure, sort_by_cause

_MOST_WIDTH = 60


def format_report(name: str, failures: Mapping[int, ProcessFailure]) -> str:
    """Return the report, root cause first. ``failures`` maps global ranks to failures."""
    (root_rank, root), *others = sort_by_cause(failures)
    sections = ["Root Cause (first observed failure):", *_describe(0, root_rank, root)]
    failed = [(rank, failure) for rank, failure in others if not failure.victim]
    # By rank: in which order those who were stopped at once happened to end says nothing.
    stopped = sorted(((r, f) for r, f in others if f.victim), key=lambda item: item[0])
    sections += ["", "Other Failures:"]
    for index, (rank, failure) in enumerate(failed, 1):
        sections += _describe(index, rank, failure)
    if not failed:
        sections.append("  <NO_OTHER_FAILURES>")
    if stopped:
        listed = ", ".join(f"{rank} ({_describe_end(failure)})" for rank, failure in stopped)
        sections += ["", f"Stopped because of it: rank {listed}"]
    title = f"{name} FAILED"
    width = min(_MOST_WIDTH, max(len(line) for line in [title, *sections]))
    return "\n".join(["", "=" * width, title, "-" * width, *sections, "=" * width])


def _describe(index: int, rank: int, failure: ProcessFailure) -> list[str]:
    lines = [
        f"[{index}]:",
        f"  time      : {failure.timestamp_isoformat()}",
        f"  host      : {failure.host or socket.gethostname()}",
        f"  rank      : {rank} (local_rank: {failure.local_rank})",
        f"  exitcode  : {failure.exitcode} (pid: {failure.pid})",
        f"  error_file: {failure.error_file}",
    ]
    if failure.exitcode < 0:
        lines[4] += f" ({failure.signal_name()})"
    if failure.traceback:
        lines += ["  traceback : " + _indent(failure.traceback.rstrip())]
    elif failure.exception():
        lines += ["  exception : " + failure.exception()]
    else:
        lines += ["  message   : " + _indent(failure.message)]
    if failure.hint:
        lines += ["  hint      : " + failure.hint]
    if failure.stderr_tail and not failure.traceback:
        lines += ["  stderr    : " + _indent("\n".join(failure.stderr_tail))]
    if failure.log:
        lines += ["  log       : " + failure.log]
    return lines


def _indent(text: str) -> str:
    return text.replace("\n", "\n    ")


def _describe_end(failure: ProcessFailure) -> str:
    return failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
