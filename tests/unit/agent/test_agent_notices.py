"""Notice and acknowledgement, both sides of it: the agent's board and the worker's `elastic.worker`."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import elastic.worker
from elastic.agent.server.notices import NoticeBoard
from elastic.worker import Notice

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def board() -> Iterator[NoticeBoard]:
    board = NoticeBoard()
    board.begin(7)
    yield board
    board.close()


def worker(board: NoticeBoard, local_rank: int) -> Notice:
    env = board.environment(local_rank)
    return Notice(env["ELASTIC_NOTICE_FILE"], env["ELASTIC_NOTICE_ACKNOWLEDGE"])


def readable(board: NoticeBoard) -> bool:
    return bool(select.select([board.fileno()], [], [], 0)[0])


def test_notice_is_given_read_and_acknowledged(board: NoticeBoard) -> None:
    first, second = worker(board, 0), worker(board, 1)
    assert (first.pending, first.reason, first.deadline) == (False, "", None)
    first.acknowledge()
    assert not readable(board), "there is nothing to acknowledge yet"

    deadline = time.monotonic() + 5
    board.post([0, 1], reason="1 waiting", deadline=deadline)
    assert (first.pending, first.reason, first.deadline) == (True, "1 waiting", deadline)
    assert board.acknowledged() == frozenset()
    second.acknowledge()
    second.acknowledge()
    assert readable(board)
    assert board.acknowledged() == {1}
    assert not readable(board), "it was taken in: the loop does not spin"
    first.acknowledge()
    assert board.acknowledged() == {0, 1}


def test_an_earlier_round_means_nothing(board: NoticeBoard) -> None:
    board.post([0], reason="so", deadline=1.0)
    late = worker(board, 0)
    late.acknowledge()
    board.begin(8)
    assert not worker(board, 0).pending
    board.post([0], reason="so", deadline=1.0)
    assert board.acknowledged() == frozenset()
    late.acknowledge()
    assert board.acknowledged() == frozenset()


def test_what_a_stranger_writes_is_no_acknowledgement(board: NoticeBoard) -> None:
    board.post([0], reason="so", deadline=1.0)
    pipe = board.environment(0)["ELASTIC_NOTICE_ACKNOWLEDGE"]
    with Path(pipe).open("wb", buffering=0) as file:
        file.write(b"\xff\n7-1\n7-0x\n../7-0\n\n7-")
        assert board.acknowledged() == frozenset()
        file.write(b"0\n")
        assert board.acknowledged() == {0}


def test_a_shell_can_do_it(board: NoticeBoard) -> None:
    board.post([3], reason="so", deadline=1.0)
    script = (
        'test -e "$ELASTIC_NOTICE_FILE" && basename "$ELASTIC_NOTICE_FILE" > "$ELASTIC_NOTICE_ACKNOWLEDGE"'
    )
    subprocess.run(["sh", "-c", script], env={**os.environ, **board.environment(3)}, check=True, timeout=30)
    assert board.acknowledged() == {3}


def test_without_an_agent_there_is_never_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTIC_NOTICE_FILE", raising=False)
    monkeypatch.delenv("ELASTIC_NOTICE_ACKNOWLEDGE", raising=False)
    notice = elastic.worker.notice()
    assert (notice.pending, notice.reason, notice.deadline) == (False, "", None)
    notice.acknowledge()
    notice.wait_for_end()


def test_an_agent_that_is_gone_does_no_harm(board: NoticeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in board.environment(0).items():
        monkeypatch.setenv(name, value)
    notice = elastic.worker.notice()
    board.post([0], reason="so", deadline=1.0)
    assert notice.pending
    directory = Path(os.environ["ELASTIC_NOTICE_FILE"]).parent
    board.close()
    board.close()
    assert not directory.exists()
    notice.acknowledge()
    assert not notice.pending


def test_the_workers_side_loads_the_timers_and_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import elastic.worker; print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = set(done.stdout.split())
    loaded.discard("__mp_main__")  # a second name that the standard library gives to the program
    assert {name.partition(".")[0] for name in loaded} <= sys.stdlib_module_names | {"elastic"}
    ours = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("elastic.")}
    assert ours == {"elastic.worker", "elastic.timer", "elastic.utils"}
