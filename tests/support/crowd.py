"""Many handlers in a few processes, and what etcd counts of them.

As a program (``python -m support.crowd ENDPOINT RUN_ID NODES COUNT SETTINGS``) it is one of those processes:
it joins COUNT nodes of a world of NODES at once, tells the outcome in one line of JSON, and leaves when its
standard input ends.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from elastic.rendezvous import create_handler
from support.nodes import PATIENCE, TESTS, parameters

_WRITES = re.compile(r"^etcd_(?:debugging_)?mvcc_put_total (\S+)$", re.MULTILINE)
_HANDLED = re.compile(r'grpc_server_handled_total\{grpc_code="OK",grpc_method="(\w+)".*\} (\S+)')


@dataclass(frozen=True, slots=True)
class Counts:
    """What etcd has served so far: keys written, and requests by method ("Txn", "Range", ...)."""

    puts: int
    requests: dict[str, int]

    def since(self, before: Counts) -> Counts:
        methods = {m: n - before.requests.get(m, 0) for m, n in self.requests.items()}
        return Counts(self.puts - before.puts, {m: n for m, n in methods.items() if n})


def counts(url: str) -> Counts:
    """The server's own count. Keys written by transactions count, deletions and leases do not."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    puts = _WRITES.search(text)
    assert puts is not None, "etcd tells no count of puts"
    return Counts(int(float(puts[1])), {m: int(float(n)) for m, n in _HANDLED.findall(text)})


class Crowd:
    """`nodes` nodes of one world, in `processes` processes that end with this one. Close it."""

    def __init__(self, endpoint: str, run_id: str, *, nodes: int, processes: int, **conf: Any) -> None:
        self.nodes = nodes
        self.seconds = 0.0
        self._parts = [
            _Part(endpoint, run_id, nodes, nodes // processes + (i < nodes % processes), conf)
            for i in range(processes)
        ]

    def wait_ready(self) -> None:
        """Wait until every handler is made and connected. `form` comes next."""
        for part in self._parts:
            part.wait_ready()

    def form(self) -> list[dict[str, Any]]:
        """Have all join at once; the outcome of each node, once the world has formed."""
        start = time.monotonic()
        for part in self._parts:
            part.go()
        outcomes = [each for part in self._parts for each in part.outcomes()]
        self.seconds = time.monotonic() - start
        return outcomes

    def close(self) -> None:
        for part in self._parts:
            part.close()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Part:
    def __init__(self, endpoint: str, run_id: str, nodes: int, count: int, conf: dict[str, Any]) -> None:
        arguments = [endpoint, run_id, str(nodes), str(count), json.dumps(conf)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.crowd", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        )

    def _line(self) -> str:
        """The next line. A process that hangs is killed, so that this ends."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(2 * PATIENCE, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
            watchdog.join()
        assert line, "a process of the crowd ended early; its words are above"
        return line

    def wait_ready(self) -> None:
        self._line()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def outcomes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._line())
        return found

    def close(self) -> None:
        try:
            self._process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def main(arguments: list[str]) -> int:
    endpoint, run_id, nodes, count, conf = arguments
    wanted = parameters(endpoint, run_id, nodes, **json.loads(conf))
    with ThreadPoolExecutor(int(count)) as pool:
        handlers = list(pool.map(lambda _: create_handler(wanted), range(int(count))))
        print("ready", flush=True)
        if sys.stdin.readline():
            worlds = list(pool.map(lambda handler: handler.next_rendezvous(), handlers))
            told = [
                {"rank": w.rank, "round": w.round, "port": w.bootstrap_store_info.port, "size": w.world_size}
                for w in worlds
            ]
            print(json.dumps(told), flush=True)
            sys.stdin.read()
        list(pool.map(lambda handler: handler.shutdown(), handlers))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
