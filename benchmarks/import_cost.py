"""What ``import elastic.run`` costs over a bare interpreter.

    python benchmarks/import_cost.py [--runs N] [--module NAME]

Each run starts two interpreters, one after the other, in an order that alternates: one that does nothing
and one that imports the module. The cost is the median over the pairs of their difference, so that a
machine that is slow for a while is slow for both. It also tells how many modules the import loaded.
Bytecode is cached, as it is for installed packages, in a directory of the benchmark's own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNT_MODULES = "import sys; before = len(sys.modules); import {}; print(len(sys.modules) - before)"


def interpreter(program: str, *, cache: str) -> tuple[float, str]:
    """Seconds that a fresh interpreter takes to run the program, and what it printed."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": cache}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", program], env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    return time.perf_counter() - start, result.stdout.strip()


def paired_runs(module: str, count: int, *, cache: str) -> list[tuple[float, float]]:
    """(bare, importing) seconds of each pair."""
    pairs = []
    for run in range(count):
        programs = ["pass", f"import {module}"]
        if run % 2:
            programs.reverse()
        seconds = {program: interpreter(program, cache=cache)[0] for program in programs}
        pairs.append((seconds["pass"], seconds[f"import {module}"]))
    return pairs


def positive(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} runs measure nothing: give at least 1")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="What importing the command line costs.")
    parser.add_argument("--runs", type=positive, default=15, help="pairs of interpreters (default: 15)")
    parser.add_argument("--module", default="elastic.run", help="what to import (default: elastic.run)")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as cache:
        # The first run also fills the cache.
        _, modules = interpreter(COUNT_MODULES.format(options.module), cache=cache)
        pairs = paired_runs(options.module, options.runs, cache=cache)
    bare = statistics.median(pair[0] for pair in pairs)
    importing = statistics.median(pair[1] for pair in pairs)
    cost = statistics.median(pair[1] - pair[0] for pair in pairs)
    print(f"python {sys.version.split()[0]}, {options.runs} pairs of runs, medians")
    print(f"bare interpreter      {bare * 1000:7.1f} ms")
    print(
        f"import {options.module:<14} {importing * 1000:7.1f} ms   {importing / bare:.2f} times the bare one"
    )
    print(f"cost                  {cost * 1000:7.1f} ms   {modules} modules")


if __name__ == "__main__":
    main()
