"""Node checks as programs: good, bad, and every kind of trouble; and none that leaves anything behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.reporting import PATIENCE, Worker

from elastic.agent.server import node_check
from elastic.agent.server.node_check import NodeHealth, NodeVerdict, check_node
from elastic.utils.processes import Process, read_process


def check(*lines: str, timeout: float = PATIENCE) -> NodeVerdict:
    return check_node(["sh", "-c", "\n".join(lines)], timeout, environment=os.environ, machine="m")


def test_good_and_bad() -> None:
    good = check("echo fine")
    assert (good.health, good.may_join, good.output) == (NodeHealth.GOOD, True, "fine\n")
    bad = check("echo looking", "echo GPU 3: ECC >&2", "exit 1")
    assert (bad.health, bad.may_join) == (NodeHealth.BAD, False)
    assert bad.reason == "the node check found this node to be bad: GPU 3: ECC"
    assert bad.machine == "m"
    assert 0 < bad.seconds < PATIENCE


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("kill -SEGV $$", "was ended by SIGSEGV"),
        ("exit 3", "ended with exit code 3"),
        ("no-such-tool-at-all", "ended with exit code 127"),
        (f"{sys.executable} -c 'import no_such_module'", "ModuleNotFoundError"),
    ],
)
def test_trouble_of_the_checker_keeps_no_node_out(line: str, reason: str) -> None:
    verdict = check(line)
    assert (verdict.health, verdict.may_join) == (NodeHealth.UNKNOWN, True)
    assert reason in verdict.reason


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    verdict = check_node([str(tmp_path / "none")], environment={})
    assert verdict.health is NodeHealth.UNKNOWN
    assert verdict.reason.startswith("the node check cannot be started: ")


def test_garbage_without_end_is_cut_and_says_nothing() -> None:
    verdict = check("head -c 3000000 /dev/urandom", "echo the end")
    assert verdict.health is NodeHealth.GOOD
    assert verdict.output.endswith("the end\n")
    assert len(verdict.output) <= 4096


def test_one_that_can_not_be_killed_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a tool that asks a broken device and hangs in the kernel. Here it is that nobody kills it."""
    left: list[Process] = []
    spared: list[subprocess.Popen[bytes]] = []

    def spare(process: subprocess.Popen[bytes]) -> None:
        spared.append(process)

    with monkeypatch.context() as patch:
        patch.setattr(node_check, "_KILL_SECONDS", 0.2)
        patch.setattr(node_check, "end", lambda find, *_args, **_: left.extend(find()))
        patch.setattr(subprocess.Popen, "kill", spare)
        verdict = check("exec sleep 1000", timeout=0.2)
    for process in spared:
        process.kill()
        process.wait()
    assert (verdict.health, verdict.reason) == (NodeHealth.UNKNOWN, "the node check did not end within 0.2 s")
    assert [process.pid for process in left] == [spared[0].pid]


def test_a_hang_ends_in_time_and_so_does_all_that_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    pids = tmp_path / "pids"
    pids.touch()
    verdict = check(
        f"setsid sh -c 'echo $$ >> {pids}; trap : TERM; sleep 60; sleep 60' &",
        f"(sleep 60 & echo $! >> {pids}; wait) &",
        f"while [ $(wc -l < {pids}) -lt 2 ]; do sleep 0.01; done",
        "trap : TERM; echo waiting; sleep 60; sleep 60",
        timeout=8,
    )
    assert verdict.health is NodeHealth.UNKNOWN
    assert verdict.reason == "the node check did not end within 8 s"
    assert verdict.output == "waiting\n"
    assert time.monotonic() - began < 30
    for pid in map(int, pids.read_text().split()):
        process = read_process(pid)
        assert process is None or process.is_dead


def test_what_a_good_checker_leaves_running_is_ended_and_holds_nobody_up(tmp_path: Path) -> None:
    began = time.monotonic()
    verdict = check(f"sleep 60 & echo $! > {tmp_path}/pid")
    assert verdict.health is NodeHealth.GOOD
    assert time.monotonic() - began < 30
    process = read_process(int((tmp_path / "pid").read_text()))
    assert process is None or process.is_dead


def test_a_check_does_not_outlive_the_agent(tmp_path: Path) -> None:
    program = f"""
import os
from elastic.agent.server.node_check import check_node
checker = "echo $$ > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/checker; sleep 60"
check_node(["sh", "-c", checker], environment=os.environ)
"""
    checker = tmp_path / "checker"
    give_up = time.monotonic() + PATIENCE
    with Worker(program) as agent:
        while not checker.exists() and time.monotonic() < give_up:
            time.sleep(0.01)
        os.kill(agent.pid, signal.SIGKILL)
        pid = int(checker.read_text())
        while (process := read_process(pid)) is not None and not process.is_dead:
            assert time.monotonic() < give_up
            time.sleep(0.02)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="the node check is an empty command"):
        check_node([], environment={})
    with pytest.raises(ValueError, match="the timeout of the node check is 0"):
        check_node(["true"], 0, environment={})
