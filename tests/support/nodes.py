"""Nodes of a job for tests: real handlers on a real etcd, in this process or in one that can be killed.

A `Node` is driven by hand (`join`) or by itself (`follow`), which does what an agent does, without workers:
it takes each world, and joins the next one as soon as it hears that there is or should be one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from elastic.etcd import Client
from elastic.rendezvous import (
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStatus,
    Standing,
    create_handler,
)
from support.etcd import EtcdServer, free_port

TESTS = Path(__file__).resolve().parents[1]
PATIENCE = 40.0
"""Seconds after which a test gives up waiting. Nothing that works comes near it."""

DEFAULTS = {"last_call_timeout": 0.3, "settle_timeout": 0.3, "join_timeout": 60, "ttl": 3}


def parameters(endpoint: str, run_id: str, nnodes: str, **conf: Any) -> RendezvousParameters:
    """As a command line would ask for it, with short times; `backend` is etcd unless it is among `conf`."""
    low, _, high = nnodes.partition(":")
    settings = {**DEFAULTS, **conf}
    backend = settings.pop("backend", "etcd")
    return RendezvousParameters(
        backend, endpoint, run_id, int(low), int(high or low), local_addr="127.0.0.1", **settings
    )


def in_thread(call: Callable[[], Any], *, name: str) -> Future[Any]:
    """The outcome of a call that runs in a thread of its own."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as e:
            future.set_exception(e)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class Node:
    """One node. Close it."""

    def __init__(self, endpoint: str, run_id: str, nnodes: str, **conf: Any) -> None:
        self.handler: RendezvousHandler = create_handler(parameters(endpoint, run_id, nnodes, **conf))
        self.changed = threading.Condition()
        self.worlds: list[RendezvousInfo] = []
        self.join_seconds: list[float] = []
        self.statuses: list[RendezvousStatus] = []
        self.error: RendezvousError | None = None
        self.ended: RendezvousStatus | None = None
        self.follower: Future[None] | None = None
        self._closing = False
        self.handler.subscribe(self._note)

    @property
    def id(self) -> str:
        return self.handler.node_id

    def _note(self) -> None:
        with self.changed:
            self.statuses.append(self.handler.status())
            self.changed.notify_all()

    # -- by hand ----------------------------------------------------------------------------------

    def join(self) -> Future[RendezvousInfo]:
        return in_thread(self.handler.next_rendezvous, name=f"test-join {self.id}")

    def until(self, condition: Callable[[], bool], *, what: str, seconds: float = PATIENCE) -> None:
        """Wait for something that the handler tells of."""
        with self.changed:
            assert self.changed.wait_for(condition, seconds), (
                f"{what}: not within {seconds:g} s; worlds {self.sizes}, error {self.error!r}, "
                f"last {self.statuses[-1:]}"
            )

    def until_status(self, condition: Callable[[RendezvousStatus], bool], *, what: str) -> RendezvousStatus:
        self.until(lambda: condition(self.handler.status()), what=what)
        return self.handler.status()

    # -- by itself --------------------------------------------------------------------------------

    def follow(self) -> Node:
        """Take world after world until the job ends, an error comes or the node is closed."""
        self.follower = in_thread(self._follow, name=f"test-follow {self.id}")
        return self

    def _follow(self) -> None:
        try:
            while not self._closing:
                started = time.monotonic()
                info = self.handler.next_rendezvous()
                with self.changed:
                    self.join_seconds.append(time.monotonic() - started)
                    self.worlds.append(info)
                    self.changed.notify_all()
                self.handler.workers_started()
                status = self._disturbance()
                if status is None or status.standing in (Standing.CLOSED, Standing.EVICTED, Standing.LOST):
                    break
                self.handler.regroup(status.reason or f"{status.nodes_waiting} waiting")
        except RendezvousError as e:
            self.error = e
        with self.changed:
            self.ended = self.handler.status()
            self.changed.notify_all()

    def _disturbance(self) -> RendezvousStatus | None:
        """The first status that an agent must act upon; None where the node is closed before."""

        def disturbed() -> bool:
            status = self.handler.status()
            return self._closing or status.standing is not Standing.CURRENT or status.nodes_waiting > 0

        with self.changed:
            self.changed.wait_for(disturbed)
        return None if self._closing else self.handler.status()

    @property
    def sizes(self) -> list[int]:
        return [info.world_size for info in self.worlds]

    @property
    def world(self) -> RendezvousInfo:
        return self.worlds[-1]

    def until_world(self, size: int, *, count: int = 1) -> RendezvousInfo:
        """Wait until the node is in a world of that size, its `count`-th at least; returns it."""
        self.until(
            lambda: len(self.worlds) >= count and self.worlds[-1].world_size == size,
            what=f"a world of {size}",
        )
        return self.worlds[-1]

    def until_over(self) -> None:
        self.until(lambda: self.ended is not None, what="the end")

    def close(self) -> bool:
        """Leave. Returns whether the goodbye was heard."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        heard = self.handler.shutdown()
        if self.follower is not None:
            self.follower.result(PATIENCE)
        return heard


def ids(info: RendezvousInfo) -> list[str]:
    """The members of a world in the order of their ranks."""
    return [member.node_id for member in info.participants]


def records(client: Client, run_id: str, under: str = "") -> dict[str, Any]:
    """The records of a run by key, as what is in etcd says."""
    prefix = f"/elastic/{run_id}/"
    found = client.get_prefix((prefix + under).encode()).kvs
    return {kv.key.decode()[len(prefix) :]: json.loads(kv.value) for kv in found}


@contextlib.contextmanager
def out_of_sight(server: EtcdServer) -> Iterator[Client]:
    """Run an ended server where its clients do not find it, for things to happen that they do not see."""
    port, server.port = server.port, free_port()
    server.start().wait_ready()
    with Client([server.endpoint]) as client:
        yield client
    server.stop()
    server.port = port


class NodeProcess:
    """A following node in a process of its own, which can be killed. It ends with this one."""

    def __init__(self, endpoint: str, run_id: str, nnodes: str, **conf: Any) -> None:
        self.changed = threading.Condition()
        self.told: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.node_process", endpoint, run_id, nnodes, json.dumps(conf)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        )
        self._reader = threading.Thread(target=self._read, name="test-node-process", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.told.append(json.loads(line))
                self.changed.notify_all()

    def until(self, condition: Callable[[dict[str, Any]], bool], *, what: str) -> dict[str, Any]:
        """Wait for a line that is so; returns it."""

        def found() -> bool:
            return any(condition(each) for each in self.told)

        with self.changed:
            assert self.changed.wait_for(found, PATIENCE), f"{what}: not in time, only {self.told}"
            return next(each for each in self.told if condition(each))

    def until_world(self, size: int) -> dict[str, Any]:
        return self.until(lambda each: each.get("world_size") == size, what=f"a world of {size}")

    def pause(self) -> None:
        """Freezes it, until `resume`."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it without a goodbye."""
        self.process.kill()
        self._collect()

    def close(self) -> None:
        """Has it leave, and ends it in any case."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._collect()

    def _collect(self) -> None:
        self.process.wait()
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
