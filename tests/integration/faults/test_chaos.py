"""Random kills and joins: every job ends well, no rank is held twice in a round, and spares take over."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.chaos import MIN_NODES, SLOTS, run_seeds, sequence
from support.etcd import EtcdServer


def test_sequences_reach_what_matters() -> None:
    deeds = {step.deed for seed in range(12) for step in sequence(seed)}
    assert deeds == {"join", "lose", "kill", "leave", "stop", "continue"}
    assert sequence(7) == sequence(7)
    for seed in range(200):
        up = set(range(SLOTS))
        for step in sequence(seed):
            up = up | {step.slot} if step.deed in ("join", "continue") else up - {step.slot}
            assert len(up) >= MIN_NODES, seed


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(12), id="dozen"), pytest.param(range(12, 62), id="fifty", marks=pytest.mark.slow)],
)
def test_random_kills_and_joins(etcd: EtcdServer, tmp_path: Path, seeds: range) -> None:
    """A seed that fails is run again by ``scripts/chaos --from SEED --seeds 1``."""
    failures = run_seeds(etcd.endpoint, tmp_path, seeds, at_once=3)
    assert not failures, "\n\n".join(failures)
