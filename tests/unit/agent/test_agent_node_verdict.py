"""What the exit code of a node check means."""

from __future__ import annotations

import pytest

from elastic.agent.server.node_check import NodeHealth, NodeVerdict, judge

TRACEBACK = "Traceback (most recent call last):\n  File 'x'\nValueError: no such device\n"


@pytest.mark.parametrize(
    ("code", "output", "health", "reason"),
    [
        (0, "", NodeHealth.GOOD, "the node check found nothing"),
        (0, "ERROR: \x00 unhealthy", NodeHealth.GOOD, "the node check found nothing"),
        (1, "", NodeHealth.BAD, "the node check found this node to be bad"),
        (1, "looking\nGPU 3: X\n\n", NodeHealth.BAD, "the node check found this node to be bad: GPU 3: X"),
        (
            1,
            "looking\n" + TRACEBACK,
            NodeHealth.UNKNOWN,
            "the node check ended with an uncaught exception: ValueError: no such device",
        ),
        (
            2,
            "",
            NodeHealth.UNKNOWN,
            "the node check ended with exit code 2: neither good nor bad",
        ),
        (
            127,
            "",
            NodeHealth.UNKNOWN,
            "the node check ended with exit code 127: neither good nor bad",
        ),
        (-11, "", NodeHealth.UNKNOWN, "the node check was ended by SIGSEGV"),
        (None, "", NodeHealth.UNKNOWN, "the node check did not end within 5 s"),
    ],
)
def test_only_a_checker_that_works_and_says_so_keeps_a_node_out(
    code: int | None, output: str, health: NodeHealth, reason: str
) -> None:
    assert judge(code, output, timeout=5) == (health, reason)
    verdict = NodeVerdict(health=health, reason=reason, machine="rack-7")
    assert verdict.may_join == (health is not NodeHealth.BAD)
    assert verdict.labels() == {
        "node-check": health.value,
        "node-check-reason": reason,
        "machine": "rack-7",
    }
