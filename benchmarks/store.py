"""What a TCPStore and a FileStore cost: calls in a second, and how long until a waiter hears of a change.

    python benchmarks/store.py [--calls N]

The server of the TCPStore is in a process of its own, as it is on the node of another agent. The time to
hear is that of a ball that two clients throw to each other: each waits for the change of the other, reads
and sets. The medians are of single calls.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from elastic.store import FileStore, Store, TCPStore  # noqa: E402

SERVER = """
import sys
from elastic.store import TCPStoreServer
with TCPStoreServer("127.0.0.1", secret="bench") as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


def median_of(call: Callable[[], object], count: int) -> float:
    """The median of a call's seconds."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def throws(one: Store, other: Store, count: int) -> float:
    """The seconds of a throw from one client to the other."""

    def play(store: Store, first: int) -> None:
        for number in range(first, count, 2):
            while (found := store.peek("ball")) != b"%d" % number:
                store.wait_change("ball", found)
            store.set("ball", str(number + 1))

    players = [threading.Thread(target=play, args=each) for each in ((one, 1), (other, 2))]
    for player in players:
        player.start()
    begun = time.perf_counter()
    one.set("ball", "1")
    for player in players:
        player.join()
    return (time.perf_counter() - begun) / count


def report(name: str, one: Store, other: Store, calls: int) -> None:
    one.set("a", "x" * 100)
    lines = {
        "get": median_of(lambda: one.get("a"), calls),
        "set": median_of(lambda: one.set("a", "x" * 100), calls),
        "add": median_of(lambda: one.add("n", 1), calls),
        "throw": throws(one, other, calls),
    }
    print(name + "  " + "  ".join(f"{what} {1e6 * seconds:6.0f} us" for what, seconds in lines.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000, help="of each kind (default: 2000)")
    calls = parser.parse_args().calls
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with (
            TCPStore("127.0.0.1", port, secret="bench") as one,
            TCPStore("127.0.0.1", port, secret="bench") as other,
        ):
            report("TCPStore ", one, other, calls)
        server.communicate()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with FileStore(path) as mine, FileStore(path) as yours:
            report("FileStore", mine, yours, calls)


if __name__ == "__main__":
    main()
