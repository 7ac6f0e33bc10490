"""The agent's loop in this process, where a test can choose the moment at which something happens."""

from __future__ import annotations

import select
import signal
import sys
import threading
import uuid
from pathlib import Path

import pytest
from support.effort import measure_effort
from support.etcd import EtcdServer
from support.job import Agent, wait_until

from elastic.agent.server import LocalElasticAgent, RunResult, WorkerGroup, WorkerSpec, WorkerState
from elastic.multiprocessing import Redirects, Std
from elastic.rendezvous import RendezvousParameters, create_handler


class EarlyLook(LocalElasticAgent):
    """Whatever happens to its workers happens right after they were looked at."""

    def _monitor_workers(self, group: WorkerGroup) -> RunResult:
        seen = super()._monitor_workers(group)
        fd = self._workers_fd(group)
        if seen.state is WorkerState.HEALTHY and fd is not None:
            select.select([fd], [], [], 30)
        return seen


def run(agent: LocalElasticAgent) -> RunResult:
    """The result of an agent that is stopped where it does not end."""
    overdue = threading.Timer(60, agent.stop)
    overdue.start()
    try:
        return agent.run()
    finally:
        overdue.cancel()
        overdue.join()
        agent.get_worker_group().spec.rdzv_handler.shutdown()


def test_a_worker_that_ends_while_the_agent_decides_is_not_overlooked(etcd: EtcdServer) -> None:
    handler = create_handler(RendezvousParameters("etcd", etcd.endpoint, uuid.uuid4().hex, 1, 1))
    spec = WorkerSpec("trainer", 1, handler, entrypoint=sys.executable, args=("-c", "pass"))
    result = run(EarlyLook(spec, signals_to_handle=()))
    assert result.state is WorkerState.SUCCEEDED


def program() -> str:
    """The program that a worker is, or was forked from."""
    print("told", flush=True)
    return " ".join(sys.orig_argv)


@pytest.mark.parametrize(("method", "module"), [("spawn", "function_worker"), ("fork", "fork_server")])
def test_the_spec_says_how_workers_are_started_and_where_their_output_goes(
    etcd: EtcdServer, tmp_path: Path, method: str, module: str
) -> None:
    handler = create_handler(RendezvousParameters("etcd", etcd.endpoint, uuid.uuid4().hex, 1, 1))
    spec = WorkerSpec(
        "trainer",
        2,
        handler,
        entrypoint=program,
        start_method=method,
        redirects=Redirects.from_str("0:1"),
        tee=Std.NONE,
        log_dir=tmp_path / "logs",
    )
    result = run(LocalElasticAgent(spec, signals_to_handle=()))
    assert result.state is WorkerState.SUCCEEDED
    assert all(module in value for value in result.return_values.values())
    assert Path(result.stdouts[0]).read_text() == "told\n"
    assert result.stdouts[1] == ""
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_an_idle_agent_sleeps(tmp_path: Path) -> None:
    """What is left is its lease and the question whether etcd lives: polling anywhere would be far more."""
    flags = ["--standalone", "--nproc-per-node=1", "--no-python", "--shutdown-timeout=5"]
    agent = Agent("agent", [*flags, "sh", "-c", "echo runs; exec sleep 600"], directory=tmp_path, env={})
    try:
        agent.wait_until(lambda a: "runs" in a.text, "the worker runs")

        def sleeps() -> bool:
            effort = measure_effort(agent.process.pid, seconds=6)
            return effort.main < 1 and effort.main + effort.others < 5

        threading.Event().wait(2)
        wait_until(sleeps, "it sleeps once its start is over")
    finally:
        agent.send(signal.SIGTERM)
        agent.wait()
        agent.close()
