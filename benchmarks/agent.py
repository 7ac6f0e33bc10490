"""How soon an agent notices that a worker was killed, and what it costs while nothing happens.

    python benchmarks/agent.py [--kills 40] [--workers 8] [--idle SECONDS] [--check]

A real agent of the real command with its own etcd on this machine, whose workers sleep. The first number is
the time from `kill -9` of one worker, another one each time, until the agent's word of it has arrived here;
after each the workers are started again. The others are of an idle agent: how often per second its loop wakes
up, how often its other threads do (to keep its lease and to hear that etcd lives), and its share of one core.
Its etcd, its workers and the process that guards them are not counted. With --check the program fails if an
idle agent wakes up twice a second or more in all, or uses half a percent of a core.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.effort import measure_effort
from support.job import Agent, wait_until

# What an idle agent stays below.
WAKEUPS_PER_SECOND = 2.0
SHARE_OF_A_CORE = 0.005


def workers_of(agent: Agent, count: int, *, besides: list[int]) -> list[int]:
    """The process ids of the agent's workers, once there are so many that are none of an earlier round."""

    def found() -> list[int]:
        children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if name_of(pid) == "sleep" and int(pid) not in besides]

    wait_until(lambda: len(found()) == count, "all workers run")
    return found()


def name_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def seconds_to_notice(agent: Agent, pid: int) -> float:
    """From the kill until the agent has said that a worker failed."""
    seen = agent.text.count(" failed with signal 9")
    started = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    agent.wait_until(lambda a: a.text.count(" failed with signal 9") > seen, "the kill is noticed")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="How soon an agent notices a kill, and what it costs idle.")
    parser.add_argument("--kills", type=int, default=40, help="how many workers to kill (40)")
    parser.add_argument("--workers", type=int, default=8, help="of the agent (8)")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which nothing happens (30)")
    parser.add_argument("--check", action="store_true", help="fail if an idle agent does more than it may")
    options = parser.parse_args()

    flags = ["--standalone", f"--nproc-per-node={options.workers}", "--no-python", "--shutdown-timeout=5"]
    flags += ["--max-restarts=1000000", "--restart-backoff=0", "--max-same-failures=0"]
    with tempfile.TemporaryDirectory() as directory:
        agent = Agent("agent", [*flags, "sleep", "3600"], directory=Path(directory), env={})
        try:
            times: list[float] = []
            workers: list[int] = []
            for turn in range(options.kills):
                workers = workers_of(agent, options.workers, besides=workers)
                times.append(seconds_to_notice(agent, workers[turn % options.workers]))
            workers_of(agent, options.workers, besides=workers)
            time.sleep(1.0)  # until the last start is over
            effort = measure_effort(agent.process.pid, seconds=options.idle)
        finally:
            agent.send(signal.SIGTERM)
            agent.wait()
            agent.close()
    print(f"a kill is noticed in {statistics.median(times) * 1000:.1f} ms (median of {len(times)}), ", end="")
    print(f"{max(times) * 1000:.1f} ms at worst")
    wakeups = effort.main + effort.others
    print(f"idle: {wakeups:.2f} wake-ups a second ({effort.main:.2f} of the loop, ", end="")
    print(f"{effort.others:.2f} of other threads), {effort.cpu * 100:.3f} % of a core")
    if options.check and (wakeups >= WAKEUPS_PER_SECOND or effort.cpu >= SHARE_OF_A_CORE):
        sys.exit(
            f"an idle agent may wake up {WAKEUPS_PER_SECOND:g} times a second and use {SHARE_OF_A_CORE:.1%}"
        )


if __name__ == "__main__":
    main()
