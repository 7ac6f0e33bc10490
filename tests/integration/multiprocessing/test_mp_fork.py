"""Workers that are forked: from whom, with what, beside a busy etcd client, and after a failed import."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import mp_functions as functions
import pytest
from mp_support import Start, eventually
from support.inbox import Inbox

from elastic.etcd import Client, LeaseLost, WatchBatch, prefix
from elastic.multiprocessing import DefaultLogsSpecs, RunProcsResult, Std, start_processes

pytest_plugins = ("mp_fixtures",)


@pytest.fixture
def forked(start: Start) -> Callable[..., RunProcsResult]:
    """Runs a function of ``mp_forked``, which this process never imports, in workers."""

    def run(name: str, workers: int = 1, **options: object) -> RunProcsResult:
        function = functions.Named("mp_forked", name)
        result = start(*[()] * workers, function=function, start_method="fork", **options).wait(60)
        assert result is not None
        return result

    return run


def test_all_are_copies_of_one_process_that_is_not_this_one(forked: Callable[..., RunProcsResult]) -> None:
    result = forked("family", 3)
    families = list(result.return_values.values())
    importers, pids, parents, sessions = (list(column) for column in zip(*families, strict=True))
    assert len(set(importers)) == 1
    assert len({os.getpid(), *importers, *pids}) == 5
    assert sessions == pids
    assert set(parents) <= {os.getpid(), *importers}  # the server's until it has ended


def test_this_process_takes_in_orphans_only_until_the_birth(start: Start) -> None:
    context = start(("import time; time.sleep(1000)",), function=functions.execute, start_method="fork")
    assert subreaper() == 1
    eventually(context.pids)
    assert subreaper() == 0
    context.close()
    assert subreaper() == 0


def subreaper() -> int:
    """Whether this process is one."""
    value = ctypes.c_int()
    assert ctypes.CDLL(None).prctl(37, ctypes.byref(value), 0, 0, 0) == 0
    return value.value


def test_what_all_have_in_common_is_there_at_the_import(forked: Callable[..., RunProcsResult]) -> None:
    envs = {rank: {"OMP_NUM_THREADS": "3", "RANK": str(rank)} for rank in range(2)}
    result = forked("settings", 2, envs=envs)
    assert result.return_values == {0: ("3", None, "0"), 1: ("3", None, "1")}


def test_the_import_prints_for_the_first_worker(
    forked: Callable[..., RunProcsResult], tmp_path: Path
) -> None:
    result = forked("family", 2, logs=DefaultLogsSpecs(tmp_path, redirects=Std.ALL))
    assert [Path(result.stdouts[rank]).read_text() for rank in range(2)] == ["imported\n", ""]


@pytest.mark.parametrize(
    ("what", "exitcode", "message"),
    [
        ("raise", 1, "ValueError: no luck with the import"),
        ("leave", 5, "Exit code 5"),
        ("crash", -signal.SIGABRT, "Signal 6"),
        ("thread", 1, "RuntimeError: importing mp_forked has started 1 threads"),
    ],
)
def test_an_import_that_fails_fails_every_worker(
    start: Start, what: str, exitcode: int, message: str
) -> None:
    function = functions.Named("mp_forked", "family")
    context = start((), (), function=function, start_method="fork", env={"WHEN_IMPORTED": what})
    eventually(lambda: (result := context.poll()) is not None and len(result.failures) == 2)
    result = context.poll()
    assert result is not None
    assert {failure.exitcode for failure in result.failures.values()} == {exitcode}
    assert all(message in failure.message for failure in result.failures.values())


def test_a_group_can_be_stopped_while_it_imports(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "imports"
    env = {"WHEN_IMPORTED": "wait", "MARK_FILE": str(mark)}
    context = start((), (), function=functions.Named("mp_forked", "family"), start_method="fork", env=env)
    assert context.pids() == {}
    eventually(mark.exists)
    assert context.poll() is None
    context.close()
    result = context.poll()
    assert result is not None
    assert (result.state, result.failures, sorted(result.victims)) == ("STOPPED", {}, [0, 1])


@pytest.mark.timeout(110)
def test_a_thousand_starts_beside_a_busy_client(client: Client, space: bytes) -> None:
    """A watch, a kept lease and writes go on in this process, with their thread and its locks."""
    inbox, is_over = Inbox(), threading.Event()
    revisions: list[int] = []

    def write() -> None:
        while not is_over.is_set():
            revisions.append(client.put(space + b"busy", b"x"))

    client.watch([prefix(space)], into=inbox, start_revision=client.put(space, b""))
    client.keep_lease(10.0, into=inbox)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        started = 0
        while started < 1000 or len(revisions) <= 100:
            envs: dict[int, dict[str, str]] = {rank: {} for rank in range(50)}
            context = start_processes("crowd", functions.inherit, (), envs, start_method="fork")
            result = context.wait(60)
            assert result is not None
            assert result.failures == {}
            for open_files, stdin in result.return_values.values():
                assert [name for name in open_files if "elastic-result" not in name] == []
                assert stdin == ""
            started += len(result.return_values)
    finally:
        is_over.set()
        writer.join(30)
    assert not writer.is_alive()
    while inbox.find(WatchBatch).revision < revisions[-1]:
        pass
    assert not [item for item in inbox.items if isinstance(item, LeaseLost)]
