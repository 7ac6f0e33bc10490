"""Health checks over HTTP: of a loop that answers, one that is stuck, a stopped process, and a dead one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.reporting import PATIENCE, Worker

from elastic.agent.server import health
from elastic.agent.server.health import Health, HealthServer

RUNNING = Health(state="running", ready=True, since=1.5, round=3, rank=1, etcd_connected=True)
WAITING = Health(state="joining", waits_for="it waits for a world", etcd_connected=False)

AGENT = """
import select, sys
from elastic.agent.server.health import Health, HealthServer
server = HealthServer(timeout=0.5)
print(*server.address, flush=True)
while True:
    select.select([server.fileno()], [], [])
    server.answer(Health(state="running", ready=True))
"""


class Loop:
    """As the agent's loop: it sleeps until it is asked, or told to change. `freeze` stops it, and only it."""

    def __init__(self, server: HealthServer) -> None:
        self.server = server
        self.health = RUNNING
        self.frozen = threading.Lock()
        self.passes = 0
        self._bell = os.eventfd(0)
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            fds = [fd for fd in (self._bell, self.server.fileno()) if fd is not None]
            ready = select.select(fds, [], [], PATIENCE)[0]
            if self._bell in ready:
                os.eventfd_read(self._bell)
            with self.frozen:
                self.passes += 1
                self.server.answer(self.health)

    def ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        self._over = True
        self.ring()
        self._thread.join()
        os.close(self._bell)


@pytest.fixture
def server() -> Iterator[HealthServer]:
    server = HealthServer(timeout=PATIENCE / 2)
    yield server
    server.close()


@pytest.fixture
def loop(server: HealthServer) -> Iterator[Loop]:
    loop = Loop(server)
    yield loop
    loop.close()


def get(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    host, port = address
    request = urllib.request.Request(f"http://{host}:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, error.read()
    return status, json.loads(body or "{}")


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def wait_until_healthy(address: tuple[str, int]) -> None:
    """Where the timeout is short, so that a slow machine can pass it."""
    wait_until(lambda: get(address, "/healthz")[0] == 200)


def test_it_answers_what_the_loop_says(server: HealthServer, loop: Loop) -> None:
    assert server.address[0] == "127.0.0.1"
    status, content = get(server.address, "/healthz")
    assert status == 200
    assert content == {
        "healthy": True,
        "state": "running",
        "ready": True,
        "waits_for": "",
        "since": 1.5,
        "round": 3,
        "rank": 1,
        "etcd_connected": True,
    }
    assert get(server.address, "/readyz")[0] == 200
    assert get(server.address, "/?probe=1")[0] == 200
    assert get(server.address, "/healthz", "HEAD") == (200, {})
    assert get(server.address, "/else") == (404, {"reason": "there are /healthz and /readyz"})


def test_a_loop_that_waits_is_healthy_and_not_ready(server: HealthServer, loop: Loop) -> None:
    loop.health = WAITING
    status, content = get(server.address, "/healthz")
    assert (status, content["waits_for"], content["etcd_connected"]) == (200, "it waits for a world", False)
    status, content = get(server.address, "/readyz")
    assert (status, content["healthy"], content["ready"]) == (503, True, False)


def test_a_loop_that_is_not_asked_is_not_woken(server: HealthServer, loop: Loop) -> None:
    get(server.address, "/healthz")
    before = loop.passes
    time.sleep(1.5)
    assert loop.passes == before
    get(server.address, "/healthz")
    assert loop.passes == before + 1


def test_a_frozen_loop_is_unhealthy_until_it_goes_on() -> None:
    with contextlib.closing(HealthServer(timeout=1.0)) as server, contextlib.closing(Loop(server)) as loop:
        wait_until_healthy(server.address)
        with loop.frozen:
            for path in ("/healthz", "/readyz"):
                status, content = get(server.address, path)
                assert (status, content["healthy"]) == (503, False)
                assert content["reason"] == "the agent has not answered within 1 s"
                assert content["last"]["round"] == 3
        wait_until_healthy(server.address)


def test_many_ask_at_once_and_a_client_that_says_nothing_holds_nobody_up(
    server: HealthServer, loop: Loop
) -> None:
    found: list[int] = []
    with socket.create_connection(server.address):
        threads = [
            threading.Thread(target=lambda: found.append(get(server.address, "/healthz")[0]))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [200] * 20


def test_a_stopped_agent_is_unhealthy_and_a_dead_one_answers_no_more() -> None:
    with Worker(AGENT) as agent:
        host, port = agent.says().split()
        address = (host, int(port))
        wait_until_healthy(address)
        os.kill(agent.pid, signal.SIGSTOP)
        assert get(address, "/healthz")[0] == 503
        os.kill(agent.pid, signal.SIGCONT)
        wait_until_healthy(address)
        os.kill(agent.pid, signal.SIGKILL)
        agent.wait()
        give_up = time.monotonic() + PATIENCE
        with contextlib.suppress(ConnectionRefusedError):
            while time.monotonic() < give_up:
                socket.create_connection(address).close()
                time.sleep(0.02)
        assert time.monotonic() < give_up, "the responder has outlived the agent"


def test_a_responder_that_is_killed_is_replaced_once_it_has_lived(
    server: HealthServer, loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_SHORT_LIFE", 0.0)
    server._responder.kill()
    assert get(server.address, "/healthz")[0] == 200
    assert "there is a new one" in caplog.text
    get(server.address, "/healthz")
    monkeypatch.setattr(health, "_SHORT_LIFE", 1000.0)
    server._responder.kill()
    wait_until(lambda: "health checks are not answered any more" in caplog.text)
    assert server.fileno() is None
    loop.ring()  # it goes on without


def test_an_address_that_is_taken_is_refused_in_words(server: HealthServer) -> None:
    host, port = server.address
    with pytest.raises(OSError, match=rf"cannot listen on {host}, port {port} \(.*\); choose another one"):
        HealthServer(host, port)
    with pytest.raises(OSError, match="no such host"):
        HealthServer("no such host", 0)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="the health port is 70000"):
        HealthServer(port=70000)
    with pytest.raises(ValueError, match="the health timeout is 0"):
        HealthServer(timeout=0)
