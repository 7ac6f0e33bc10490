"""Pauses grow, stay below their bound however often something failed, and differ from each other."""

from __future__ import annotations

import pytest

from elastic.utils.backoff import pause


@pytest.mark.parametrize("failures", [0, 1, 5, 1000, 10**6])
def test_a_pause_is_never_longer_than_its_limit(failures: int) -> None:
    limit = min(1.0, 0.01 * 2.0 ** min(failures, 20))
    assert all(0 <= pause(failures, first=0.01) <= limit for _ in range(100))


def test_pauses_grow_and_differ() -> None:
    first, later = ([pause(failures) for _ in range(200)] for failures in (0, 10))
    assert max(first) <= 0.05 < max(later)
    assert len(set(later)) > 100
