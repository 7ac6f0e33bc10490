"""Runs every scenario of this folder; the language is described in :mod:`support.scenario`.

`pytest tests/scenarios --rewrite` writes the present output into the files; review the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenario import parse, replay

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    replayed = replay(text)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(replayed)
        return
    assert replayed.splitlines() == text.splitlines()


def test_the_scenarios_are_there() -> None:
    assert len(SCENARIOS) >= 15


def test_a_block_without_its_output_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no '----' after 'tick 1s'"):
        list(parse("job 1:1\n----\n\ntick 1s\n"))


def test_a_change_of_output_is_seen() -> None:
    before = "job 1:1\nnode a join\n----\nround 1 FORMED [b]: the first round\n"
    assert "round 1 FORMED [a]: the first round" in replay(before)
