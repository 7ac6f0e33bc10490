"""The metrics of torch's agent, as ours puts them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.memory_store import Memory, MemoryStore

from elastic.agent.server import RunResult, WorkerGroup, WorkerSpec, WorkerState
from elastic.agent.server.instruments import (
    Ended,
    Entered,
    Joining,
    LoopEvent,
    WorkersStopped,
    WorkersSucceeded,
)
from elastic.agent.server.published import Published
from elastic.metrics import MetricData, MetricHandler, NullMetricHandler, configure
from elastic.multiprocessing import ProcessFailure
from elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo

FAILURE = ProcessFailure(local_rank=0, pid=1, exitcode=3)


class Kept(MetricHandler):
    def __init__(self) -> None:
        self.values: list[tuple[str, float]] = []

    def emit(self, metric_data: MetricData) -> None:
        assert metric_data.group_name == "torchelastic"
        self.values.append((metric_data.name.removeprefix("workers.trainer."), metric_data.value))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    configure(handler)
    yield handler
    configure(NullMetricHandler())


def entered(failures: int) -> Entered:
    group = WorkerGroup(WorkerSpec("trainer", 1, None, entrypoint="x"))  # type: ignore[arg-type]
    group.workers[0].global_rank = 4
    store = MemoryStore(Memory())
    info = RendezvousInfo(store, 0, 1, RendezvousStoreInfo("here", 1), 1, failures=failures)
    return Entered(info, group, {0: 1}, 0.0)


def run(kept: Kept, *story: LoopEvent, max_restarts: int = 3) -> dict[str, float]:
    """The last value of each metric."""
    instrument = Published("trainer", max_restarts=max_restarts)
    for event in story:
        instrument.tell(event)
    return dict(kept.values)


def test_the_states_of_the_workers_are_told_where_they_change(kept: Kept) -> None:
    run(
        kept,
        entered(0),
        WorkersStopped(1.0, {4: FAILURE}, {}),
        Joining("a worker failed"),
        entered(1),
        WorkersStopped(1.0, {5: FAILURE}, {4: FAILURE}),  # another node's
        entered(1),
        WorkersSucceeded(1.0),
        WorkersStopped(1.0, {}, {}),
    )
    assert kept.values == [
        ("remaining_restarts", 3),
        ("healthy", 1),
        ("failed", 1),
        ("remaining_restarts", 2),
        ("healthy", 1),
        ("stopped", 1),
        ("remaining_restarts", 2),
        ("healthy", 1),
        ("succeeded", 1),
    ]


@pytest.mark.parametrize(
    ("state", "failures", "max_restarts", "how", "flakiness"),
    [
        (WorkerState.SUCCEEDED, 0, 3, "success_no_retries", 0),
        (WorkerState.SUCCEEDED, 1, 3, "success_with_retries", 25),
        (WorkerState.SUCCEEDED, 3, 3, "success_with_retries", 75),
        (WorkerState.FAILED, 0, 0, "failed_no_retries", 100),
        (WorkerState.FAILED, 2, 2, "failed_with_retries", 100),
    ],
)
def test_the_end_is_one_of_four(
    kept: Kept, state: WorkerState, failures: int, max_restarts: int, how: str, flakiness: int
) -> None:
    values = run(kept, entered(failures), Ended(RunResult(state)), max_restarts=max_restarts)
    assert values["run_total"] == 1
    runs = {name: value for name, value in values.items() if name.startswith(("run_success", "run_failed"))}
    assert len(runs) == 4
    assert [name for name, value in runs.items() if value] == [f"run_{how}"]
    assert values["flakiness"] == flakiness


def test_an_agent_that_an_error_ended_has_no_result_to_tell(kept: Kept) -> None:
    assert run(kept, Ended(None, RuntimeError("evicted"))) == {}
