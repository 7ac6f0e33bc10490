"""The blueprint of a node's workers, and the values an agent answers with."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from elastic.agent.server import LocalElasticAgent, RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from elastic.multiprocessing import DefaultLogsSpecs
from elastic.rendezvous import RendezvousHandler, RendezvousInfo


class Nowhere(RendezvousHandler):
    """A rendezvous that nobody joins."""

    def get_backend(self) -> str:
        return "nowhere"

    def next_rendezvous(self) -> RendezvousInfo:
        raise NotImplementedError

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None: ...

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return "job"

    def shutdown(self) -> bool:
        return True


def spec(**changes: Any) -> WorkerSpec:
    return WorkerSpec(
        **{
            "role": "trainer",
            "local_world_size": 2,
            "rdzv_handler": Nowhere(),
            "entrypoint": "/usr/bin/python3",
            **changes,
        }
    )


def test_the_defaults_are_the_documented_ones() -> None:
    found = spec()
    assert (found.args, found.max_restarts, found.monitor_interval) == ((), 3, 0.1)
    assert (found.master_addr, found.master_port, found.local_addr) == (None, None, None)


def test_positions_are_those_of_the_field() -> None:
    handler = Nowhere()
    found = WorkerSpec("r", 1, handler, None, "python3", ("a",), 1, 0.5, 29500, "h", "l")
    assert (found.entrypoint, found.args, found.max_restarts) == ("python3", ("a",), 1)
    assert (found.monitor_interval, found.master_port, found.master_addr) == (0.5, 29500, "h")
    assert found.local_addr == "l"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"entrypoint": None}, "entrypoint"),
        ({"role": ""}, "role"),
        ({"local_world_size": 0}, "local_world_size is 0"),
        ({"local_world_size": -1}, "local_world_size is -1"),
        ({"max_restarts": -1}, "max_restarts is -1"),
        ({"monitor_interval": 0}, "monitor_interval is 0"),
        ({"monitor_interval": -0.1}, "monitor_interval is -0.1"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        spec(**changes)


def test_fn_is_the_old_name_of_the_entrypoint() -> None:
    with pytest.warns(DeprecationWarning, match="entrypoint") as caught:
        found = spec(entrypoint=None, fn=print)
    assert found.entrypoint is print
    assert len(caught) == 1


def test_a_current_spec_warns_of_nothing() -> None:
    spec(entrypoint=print)


class Train:
    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("entrypoint", "name"),
    [
        ("/usr/bin/python3", "python3"),
        ("python3", "python3"),
        (print, "print"),
        (Train.step, "Train.step"),
    ],
)
def test_the_name_of_what_runs(entrypoint: Any, name: str) -> None:
    assert spec(entrypoint=entrypoint).get_entrypoint_name() == name


def test_the_name_of_what_has_none() -> None:
    assert "partial" in spec(entrypoint=functools.partial(print, "x")).get_entrypoint_name()


def test_a_new_group() -> None:
    group = WorkerGroup(spec(local_world_size=3))
    assert [worker.local_rank for worker in group.workers] == [0, 1, 2]
    assert all(worker.global_rank == worker.world_size == -1 for worker in group.workers)
    assert (group.state, group.store, group.group_rank) == (WorkerState.INIT, None, None)
    assert Worker().id is None


def test_states() -> None:
    names = {"UNKNOWN", "INIT", "HEALTHY", "UNHEALTHY", "STOPPED", "SUCCEEDED", "FAILED"}
    assert {state.name for state in WorkerState} == names
    assert all(state.value == state.name for state in WorkerState)
    assert {s for s in WorkerState if WorkerState.is_running(s)} == {
        WorkerState.HEALTHY,
        WorkerState.UNHEALTHY,
    }


@pytest.mark.parametrize("state", WorkerState)
def test_only_a_failed_run_has_failed(state: WorkerState) -> None:
    result = RunResult(state)
    assert result.is_failed() is (state is WorkerState.FAILED)
    assert (result.return_values, result.failures, result.exit_code) == ({}, {}, 0)


def test_a_negative_time_for_notice_is_refused() -> None:
    with pytest.raises(ValueError, match="notice_timeout is -1"):
        LocalElasticAgent(spec(), notice_timeout=-1)


def test_where_logs_go_is_said_once() -> None:
    with pytest.raises(ValueError, match="logs_specs and log_dir set the same thing: keep one"):
        LocalElasticAgent(spec(log_dir="logs"), DefaultLogsSpecs())
