"""When an observer may end a lease: after it has watched it stand still for its whole time."""

from __future__ import annotations

import pytest

from elastic.rendezvous.backends.document.pulse import Pulses, delay_of, patience_of


def watched(*looks: tuple[float, dict[str, int]]) -> Pulses:
    pulses = Pulses(ttl=9.0, longest_gap=4.0)
    for now, leases in looks:
        pulses = pulses.after(leases, now)
    return pulses


def test_a_counter_that_stands_still_for_its_time_has_ended() -> None:
    pulses = watched(*((float(t), {"a": 1, "b": t}) for t in range(0, 10, 3)))
    assert pulses.stale(8.9, own="", delay=0) == {}
    assert pulses.stale(9.0, own="", delay=0) == {"a": 1}
    assert pulses.due(own="", delay=0) == 9.0


def test_a_counter_that_moves_has_its_whole_time_again() -> None:
    pulses = watched((0, {"a": 1}), (3, {"a": 1}), (6, {"a": 2}), (9, {"a": 2}), (12, {"a": 2}))
    assert pulses.stale(14.9, own="", delay=0) == {}
    assert pulses.stale(15.0, own="", delay=0) == {"a": 2}


def test_an_observer_that_was_held_up_judges_nobody_for_that() -> None:
    pulses = watched((0, {"a": 1}), (3, {"a": 1}), (60, {"a": 1}))
    assert pulses.stale(68.9, own="", delay=0) == {}
    assert pulses.stale(69.0, own="", delay=0) == {"a": 1}


def test_nobody_ends_its_own_lease() -> None:
    pulses = watched((0, {"a": 1}))
    assert pulses.stale(100, own="a", delay=0) == {}
    assert pulses.due(own="a", delay=0) is None


def test_what_is_gone_is_forgotten() -> None:
    pulses = watched((0, {"a": 1}), (3, {}), (6, {"a": 1}))
    assert pulses.stale(9.0, own="", delay=0) == {}


def test_a_delay_comes_on_top() -> None:
    pulses = watched((0, {"a": 1}))
    assert pulses.stale(9.5, own="", delay=1) == {}
    assert pulses.due(own="", delay=1) == 10.0


@pytest.mark.parametrize(("ttl", "interval"), [(10, 10 / 3), (10, 5), (10, 0.5), (2, 1), (300, 100)])
def test_an_outage_that_nobody_takes_for_one_costs_no_lease(ttl: float, interval: float) -> None:
    patience = patience_of(ttl=ttl, interval=interval)
    assert interval + patience.gap + patience.pause <= 0.95 * ttl
    assert 2 * patience.idle <= patience.gap, "who is not held up is not taken for it"


@pytest.mark.parametrize(
    ("own", "leads", "delay"), [("c", True, 0.0), ("a", False, 1.0), ("b", False, 1.25), ("z", False, 1.75)]
)
def test_the_leader_acts_first_and_the_others_in_their_order(own: str, leads: bool, delay: float) -> None:
    assert delay_of(own, {"c": 1, "b": 1, "a": 1}, leads=leads, step=1.0) == delay
