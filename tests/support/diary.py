"""What the workers of a job did and when, in their own words: the witness of tests in which agents are hurt.

Each worker appends a line when it starts and when it ends, with the time of the machine's monotonic
clock, which all its processes share, and of its wall clock, to compare with the records in etcd.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

DIARIST = """
import json, os, signal, sys, time

stop_file, diary, linger = sys.argv[1], sys.argv[2], float(sys.argv[3])
numbers = {"rank": "RANK", "world": "WORLD_SIZE", "round": "ELASTIC_ROUND", "port": "MASTER_PORT",
           "restarts": "TORCHELASTIC_RESTART_COUNT"}
place = {key: int(os.environ[name]) for key, name in numbers.items()}

def note(event):
    entry = {"event": event, "node": os.environ["ELASTIC_NODE_ID"], "pid": os.getpid(),
             "at": time.monotonic(), "wall": time.time(), **place}
    fd = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, json.dumps(entry).encode() + b"\\n")
    os.close(fd)

def told_to_end(number, frame):
    time.sleep(linger)
    note("end")
    os._exit(128 + number)

signal.signal(signal.SIGTERM, told_to_end)
note("start")
print(json.dumps(place) + "\\n", end="", flush=True)  # one write: a line stays whole
while not os.path.exists(stop_file):
    time.sleep(0.05)
note("end")
"""
"""A worker that keeps the diary: its arguments are the file that ends it, the diary, and for how many
seconds it goes on when it is told to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`event` is start or end, `at` is in monotonic seconds and `wall` in those since the epoch.

    `node` is the node's id, unique to its agent.
    """

    event: str
    node: str
    pid: int
    at: float
    wall: float
    rank: int
    world: int
    round: int
    port: int
    restarts: int

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.rpartition("-")[0]


class Diary:
    """Reads what the workers have written so far."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        if not self.path.exists():
            return []
        return [Entry(**json.loads(line)) for line in self.path.read_text().splitlines()]

    def starts(self, name: str = "") -> list[Entry]:
        """The starts of all workers, or of those of the node of that name, in order."""
        return [e for e in self.entries() if e.event == "start" and name in ("", e.name)]

    def end_of(self, start: Entry) -> Entry | None:
        """The end of the worker that started so; None for one that runs, or was killed."""
        ends = (
            e for e in self.entries() if e.event == "end" and e.pid == start.pid and e.round == start.round
        )
        return next(ends, None)

    def check(self) -> None:
        """No rank was held twice in a round, and no node ran the workers of two rounds at a time.

        For jobs of one worker a node.
        """
        starts = self.starts()
        holders: dict[tuple[int, int], Entry] = {}
        for start in starts:
            other = holders.setdefault((start.round, start.rank), start)
            assert other is start, (
                f"rank {start.rank} of round {start.round} was held twice: {other}, {start}"
            )
            assert start.rank < start.world, start
        worlds: dict[int, set[tuple[int, int]]] = defaultdict(set)
        by_node: dict[str, list[Entry]] = defaultdict(list)
        for start in starts:
            worlds[start.round].add((start.world, start.port))
            by_node[start.node].append(start)
        for number, found in worlds.items():
            assert len(found) == 1, f"round {number} had several worlds (size, master port): {found}"
        for of_node in by_node.values():
            for before, after in pairwise(of_node):
                assert before.round < after.round, (
                    f"a round was run twice, or out of order: {before}, {after}"
                )
                end = self.end_of(before)
                assert end is not None, f"the workers of two rounds at a time: {before}, {after}"
                assert end.at <= after.at, f"the workers of two rounds at a time: {end}, {after}"
