"""Worker groups that no test leaves running. A pytest plug-in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mp_support import DRAIN_SECONDS

from elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, PContext, start_processes
from elastic.utils.processes import Process, list_processes


@pytest.fixture
def mark() -> str:
    """An argument that no other process has, to find the processes of this test by."""
    return f"mark-{os.urandom(6).hex()}"


@pytest.fixture
def living(mark: str) -> Callable[[], list[Process]]:
    """Finds the living processes that have the mark among their arguments."""

    def find() -> list[Process]:
        return [process for process in list_processes().values() if mark in _arguments(process.pid)]

    return find


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., PContext]]:
    """Starts a group: of shell commands, one for each worker, or of a function with its arguments."""
    monkeypatch.setattr(DRAIN_SECONDS, 60.0)
    contexts: list[PContext] = []

    def make(
        *workers: Any,
        function: Callable[..., Any] | None = None,
        logs: LogsSpecs | None = None,
        env: dict[str, str] | None = None,
        envs: dict[int, dict[str, str]] | None = None,
        arguments: Sequence[str] = (),
        **options: Any,
    ) -> PContext:
        entrypoint = "bash" if function is None else function
        args = {
            rank: ("-c", worker, *arguments) if function is None else tuple(worker)
            for rank, worker in enumerate(workers)
        }
        context = start_processes(
            "default",
            entrypoint,
            args,
            envs or {rank: dict(env or {}) for rank in args},
            logs or DefaultLogsSpecs(tmp_path / "logs"),
            **options,
        )
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close(timeout=0)
