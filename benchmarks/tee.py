"""What showing and keeping the output of workers costs the process that launched them.

    python benchmarks/tee.py [--workers N] [--lines N] [--bytes N]

Workers write lines, each with one system call, and end. Measured is the CPU time (user and system) of
whoever reads them:

tee   this project's launcher, which writes each worker's log and shows every line with a prefix (into a
      file); in brackets, what starting, stopping and sweeping the same workers costs without output
cat   one ``cat`` for each worker, from its pipe to its log, and one more that shows all logs (into a file)

Every line of both is compared afterwards: whole, with its prefix, in order.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

WORKER = """
import os, sys
rank, lines, size = os.environ["RANK"], int(sys.argv[1]), int(sys.argv[2])
for number in range(lines):
    os.write(1, (f"{rank} {number} ".ljust(size - 1, "x") + chr(10)).encode())
"""

LAUNCH = """
import resource, sys
from elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes
logs, workers, *arguments = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF)
envs = {rank: {"RANK": str(rank)} for rank in range(int(workers))}
specs = DefaultLogsSpecs(logs, tee=Std.OUT)
result = start_processes("w", sys.executable, ("-c", *arguments), envs, specs).wait()
after = resource.getrusage(resource.RUSAGE_SELF)
assert not result.is_failed(), result
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, file=sys.stderr)
"""


def tee(folder: Path, *, workers: int, lines: int, size: int) -> float:
    """CPU seconds of a launcher; ``folder`` then holds ``shown`` and the logs."""
    command = [
        sys.executable,
        "-c",
        LAUNCH,
        str(folder / "logs"),
        str(workers),
        WORKER,
        str(lines),
        str(size),
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "shown").open("wb") as shown:
        done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, env=environ, check=True)
    return float(done.stderr)


def cat(folder: Path, *, workers: int, lines: int, size: int) -> float:
    """CPU seconds of as many ``cat`` as do the same."""
    seconds = 0.0
    logs = [folder / f"{rank}.log" for rank in range(workers)]
    writers, readers = [], []
    for rank, log in enumerate(logs):
        command = [sys.executable, "-c", WORKER, str(lines), str(size)]
        environ = {**os.environ, "RANK": str(rank)}
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
        with log.open("wb") as file:
            readers.append(subprocess.Popen(["cat"], stdin=writer.stdout, stdout=file))
        if writer.stdout is not None:
            writer.stdout.close()
        writers.append(writer)
    with (folder / "shown").open("wb") as shown:
        for process in (*writers, *readers):
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds += used.ru_utime + used.ru_stime if process in readers else 0
        seconds += cost_of(["cat", *map(str, logs)], shown.fileno())
    return seconds


def cost_of(command: list[str], stdout: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=stdout, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def faults(shown: Path, *, workers: int, lines: int, size: int) -> int:
    """How many of the shown lines are torn, foreign, or out of order."""
    wrong = 0
    following = [0] * workers
    for line in shown.read_bytes().splitlines():
        shape = re.fullmatch(rb"\[w(\d+)\]:(.*)", line)
        if shape is None or int(shape[1]) >= workers:
            wrong += 1
            continue
        rank = int(shape[1])
        wrong += shape[2] != f"{rank} {following[rank]} ".ljust(size - 1, "x").encode()
        following[rank] += 1
    return wrong + sum(abs(lines - count) for count in following)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of teeing, against cat.")
    parser.add_argument("--workers", type=int, default=8, help="how many write at once (default: 8)")
    parser.add_argument("--lines", type=int, default=10_000, help="lines of each (default: 10000)")
    parser.add_argument("--bytes", type=int, default=500, help="bytes of a line (default: 500)")
    parser.add_argument("--runs", type=int, default=3, help="runs, of which the best counts (default: 3)")
    options = parser.parse_args()
    work = {"workers": options.workers, "lines": options.lines, "size": options.bytes}
    teed, idle, piped, wrong = [], [], [], 0
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            teed.append(tee(Path(folder), **work))
            wrong += faults(Path(folder) / "shown", **work)
        with tempfile.TemporaryDirectory() as folder:
            idle.append(tee(Path(folder), **{**work, "lines": 0}))
        with tempfile.TemporaryDirectory() as folder:
            piped.append(cat(Path(folder), **work))
    print(
        f"{options.workers} workers, {options.lines} lines of {options.bytes} bytes, best of {options.runs}"
    )
    print(f"tee    {min(teed) * 1000:7.0f} ms   ({min(idle) * 1000:.0f} ms of it without output)")
    print(f"cat    {min(piped) * 1000:7.0f} ms")
    print(f"ratio  {min(teed) / min(piped):7.2f}")
    print(f"lines that are torn, foreign, missing or out of order: {wrong}")


if __name__ == "__main__":
    main()
