"""Where workers run, as they themselves see it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import mp_functions as functions
import pytest
from mp_support import Start

from elastic.multiprocessing import AffinityMode, NumaOptions
from elastic.multiprocessing.affinity import plan
from elastic.multiprocessing.topology import read_topology

pytest_plugins = ("mp_fixtures",)

EXCLUSIVE = NumaOptions(AffinityMode.EXCLUSIVE)


@pytest.fixture
def cores() -> int:
    """How many cores there are to divide."""
    return len({cpu.core for cpu in read_topology().cpus})


@pytest.fixture
def ours() -> Iterator[set[int]]:
    """The CPUs of this thread, which must be the same after the test."""
    before = os.sched_getaffinity(0)
    yield before
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("mode", list(AffinityMode))
@pytest.mark.parametrize("kind", ["command", "spawn", "fork"])
def test_a_worker_runs_where_it_was_planned(
    start: Start, tmp_path: Path, kind: str, mode: AffinityMode, cores: int, ours: set[int]
) -> None:
    expected = plan(read_topology(), mode, nprocs=cores)
    options = NumaOptions(mode)
    if kind == "command":
        show = (
            f"{sys.executable} -c 'import os, sys; print(*sorted(os.sched_getaffinity(0)))' > {tmp_path}/{{}}"
        )
        result = start(*map(show.format, range(cores)), numa_options=options).wait(60)
        texts = [(tmp_path / str(rank)).read_text() for rank in range(cores)]
        seen = {rank: frozenset(map(int, text.split())) for rank, text in enumerate(texts)}
    else:
        program = "import os; value = frozenset(os.sched_getaffinity(0))"
        workers = [(program,)] * cores
        group = start(*workers, function=functions.execute, start_method=kind, numa_options=options)
        result = group.wait(60)
        seen = result.return_values if result else {}
    assert result is not None
    assert result.failures == {}
    assert seen == expected
    assert all(cpus <= ours for cpus in seen.values())


@pytest.mark.usefixtures("ours")
def test_what_can_not_be_bound_runs_unbound_after_one_warning(
    start: Start, cores: int, caplog: pytest.LogCaptureFixture
) -> None:
    program = "import os; value = set(os.sched_getaffinity(0))"
    with caplog.at_level(logging.WARNING):
        context = start(*[(program,)] * (cores + 1), function=functions.execute, numa_options=EXCLUSIVE)
        result = context.wait(60)
    assert result is not None
    assert list(result.return_values.values()) == [os.sched_getaffinity(0)] * (cores + 1)
    (record,) = caplog.records
    assert "workers are not bound to CPUs (exclusive): NUMA node" in record.getMessage()
