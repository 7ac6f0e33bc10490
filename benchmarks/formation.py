"""What it takes to form a world over one etcd: the time, and the requests that each node costs.

    python benchmarks/formation.py [--nodes 4,16,64,128] [--processes 4] [--idle SECONDS]

Each line is a world of its own, formed by handlers in a few processes over an etcd of the benchmark's own,
on this machine's loopback. The time runs from the word to join until every handler has its world. What is
counted is etcd's own count: keys written, transactions, leases granted, and then how many keys are written
and how many requests but keep-alives are made while nothing happens.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.crowd import Counts, Crowd, counts

from elastic.etcd import LocalServer

SETTLE_SECONDS = 1.0  # in which the last nodes say that they run


def measure(endpoint: str, *, nodes: int, processes: int, idle: float) -> str:
    """One line of the table."""
    url = f"http://{endpoint}"
    settings = {"ttl": 30, "last_call_timeout": 600, "join_timeout": 300}
    with Crowd(endpoint, f"bench-{nodes}", nodes=nodes, processes=processes, **settings) as crowd:
        crowd.wait_ready()
        start = counts(url)
        crowd.form()
        time.sleep(SETTLE_SECONDS)
        formed = counts(url)
        time.sleep(idle)
        quiet = counts(url).since(formed)
    return row(nodes, crowd.seconds, formed.since(start), quiet)


def row(nodes: int, seconds: float, cost: Counts, quiet: Counts) -> str:
    txns, grants = cost.requests.get("Txn", 0), cost.requests.get("LeaseGrant", 0)
    others = sum(count for method, count in quiet.requests.items() if method != "LeaseKeepAlive")
    return (
        f"{nodes:6}{seconds * 1000:10.0f}{cost.puts / nodes:14.2f}{txns / nodes:14.2f}{grants / nodes:16.2f}"
        f"{quiet.puts:12}{others:16}"
    )


def sizes(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: a world has at least one node")
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description="What it takes to form a world over one etcd.")
    parser.add_argument("--nodes", type=sizes, default=[4, 16, 64, 128], help="sizes (4,16,64,128)")
    parser.add_argument("--processes", type=int, default=4, help="that the handlers are spread over (4)")
    parser.add_argument("--idle", type=float, default=3.0, help="seconds in which nothing happens (3)")
    options = parser.parse_args()

    print("  nodes   form ms   writes/node     txns/node    leases/node   idle writes   idle requests")
    with LocalServer.start(environment=os.environ) as server:
        endpoint = f"{server.endpoint.host}:{server.endpoint.port}"
        for nodes in options.nodes:
            processes = max(1, min(options.processes, nodes))
            print(
                measure(endpoint, nodes=nodes, processes=processes, idle=options.idle),
                flush=True,
            )


if __name__ == "__main__":
    main()
