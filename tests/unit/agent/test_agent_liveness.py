"""What health checks are told in each phase of the loop, and once it makes no more turns."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from elastic.agent.server import RunResult, WorkerState
from elastic.agent.server.health import HealthServer
from elastic.agent.server.instruments import Ended, LoopState
from elastic.agent.server.liveness import Liveness
from elastic.agent.server.policy import Phase
from elastic.agent.server.waiting import wait

OVER = Ended(RunResult(WorkerState.SUCCEEDED))


def ask(server: HealthServer, path: str) -> tuple[int, dict[str, Any]]:
    host, port = server.address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


class Asked:
    """A question that waits for its answer in a thread of its own."""

    def __init__(self, server: HealthServer, path: str) -> None:
        self._found: list[tuple[int, dict[str, Any]]] = []
        self._thread = threading.Thread(target=lambda: self._found.append(ask(server, path)))
        self._thread.start()

    def answer(self) -> tuple[int, dict[str, Any]]:
        self._thread.join(30)
        return self._found[0]


@pytest.fixture
def server() -> Iterator[HealthServer]:
    server = HealthServer()
    yield server
    server.close()


def turn_when_asked(liveness: Liveness, server: HealthServer, path: str, at: LoopState) -> tuple[int, Any]:
    """As the loop does: it wakes up because somebody asks, and makes a turn."""
    asked = Asked(server, path)
    fd = liveness.fileno()
    assert fd is not None
    wait([fd], None)
    liveness.turn(at)
    return asked.answer()


@pytest.mark.parametrize("phase", list(Phase), ids=lambda phase: phase.name)
def test_it_is_healthy_in_every_phase_and_ready_while_workers_run(server: HealthServer, phase: Phase) -> None:
    liveness = Liveness(server, has_etcd=True)
    at = LoopState(phase=phase, round=3, rank=1, connected=False)
    status, healthy = turn_when_asked(liveness, server, "healthz", at)
    ready, _ = turn_when_asked(liveness, server, "readyz", at)
    liveness.close()
    assert status == 200
    assert ready == (200 if phase in (Phase.RUNNING, Phase.NOTICE) else 503)
    assert (healthy["state"], healthy["waits_for"]) == (phase.name.lower(), phase.value)
    assert (healthy["round"], healthy["rank"], healthy["etcd_connected"]) == (3, 1, False)


def test_before_there_is_a_world_there_is_no_round_and_without_etcd_nothing_of_it(
    server: HealthServer,
) -> None:
    liveness = Liveness(server, has_etcd=False)
    _, content = turn_when_asked(liveness, server, "healthz", LoopState(phase=Phase.JOINING))
    liveness.close()
    assert (content["round"], content["rank"], content["etcd_connected"]) == (None, None, None)


def test_the_time_in_a_phase_begins_with_it(server: HealthServer) -> None:
    liveness = Liveness(server, has_etcd=True)
    liveness.turn(LoopState(phase=Phase.JOINING))
    joining = liveness._since
    liveness.turn(LoopState(phase=Phase.JOINING, waiting=1))
    assert liveness._since == joining
    liveness.turn(LoopState(phase=Phase.RUNNING))
    assert liveness._since > joining
    liveness.close()


def test_once_the_loop_makes_no_more_turns_it_still_answers_until_it_is_closed(server: HealthServer) -> None:
    threads = set(threading.enumerate())
    liveness = Liveness(server, has_etcd=True)
    liveness.turn(LoopState(phase=Phase.STOPPING, round=2, rank=0))
    liveness.tell(OVER)
    for _ in range(3):
        status, content = ask(server, "healthz")
        assert (status, content["state"], content["round"]) == (200, "leaving", 2)
        assert ask(server, "readyz")[0] == 503
    liveness.close()
    liveness.close()
    assert set(threading.enumerate()) <= threads
    with pytest.raises(OSError, match="refused"):
        ask(server, "healthz")


def test_it_can_be_closed_without_an_end(server: HealthServer) -> None:
    Liveness(server, has_etcd=True).close()
    assert server.fileno() is None
