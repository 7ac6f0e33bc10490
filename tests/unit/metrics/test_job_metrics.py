"""What an agent tells adds up, on a clock that the test holds; and it all comes out under its name."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.metrics import JobFacts, JobMetrics, RestartCause
from elastic.metrics.families import Family, job_families, value_families
from elastic.metrics.job import OPERATIONS
from elastic.metrics.snapshot import ETCD_BOUNDS, WORKER_STATES, Distribution

FACTS = JobFacts(run_id="run", node="alpha", node_id="alpha-1", min_nodes=2, max_nodes=4, lease_ttl=10)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> JobMetrics:
    return JobMetrics(FACTS, clock=clock)


def test_nothing_has_happened_yet(metrics: JobMetrics, clock: Clock) -> None:
    clock.now += 60
    now = metrics.snapshot()
    assert (now.in_world, now.round, now.world_size, now.lease_age) == (False, 0, 0, None)
    assert (now.training, now.lost) == (0, 0)


def test_a_world_is_entered_and_left(metrics: JobMetrics) -> None:
    metrics.entered_world(round=3, world_size=16, nodes=2, seconds=0.3)
    metrics.membership(waiting=1, spares=2)
    now = metrics.snapshot()
    assert (now.in_world, now.round, now.world_size, now.nodes) == (True, 3, 16, 2)
    assert (now.waiting, now.spares, now.worlds_entered) == (1, 2, 1)
    assert now.rendezvous.total == 0.3
    metrics.left_world()
    now = metrics.snapshot()
    assert (now.in_world, now.round, now.world_size, now.nodes) == (False, 3, 0, 0)


def test_time_is_lost_from_the_end_of_workers_to_the_start_of_the_next(
    metrics: JobMetrics, clock: Clock
) -> None:
    metrics.restarting(RestartCause.NODE_JOINED)  # before workers ran there is nothing to lose
    clock.now += 5
    metrics.workers_started()
    clock.now += 100
    metrics.restarting(RestartCause.WORKER_FAILED)
    clock.now += 3
    metrics.restarting(RestartCause.NODE_LOST)  # again, before they ran
    clock.now += 4
    assert (metrics.snapshot().training, metrics.snapshot().lost) == (100, 7)
    metrics.workers_started()
    clock.now += 10
    metrics.workers_done()
    clock.now += 1000
    now = metrics.snapshot()
    assert (now.training, now.lost) == (110, 7)
    assert now.restarts == {
        RestartCause.NODE_JOINED: 1,
        RestartCause.WORKER_FAILED: 1,
        RestartCause.NODE_LOST: 1,
    }


def test_a_lease_ages_until_it_is_renewed(metrics: JobMetrics, clock: Clock) -> None:
    metrics.lease_renewed()
    clock.now += 4
    metrics.lease_lost()
    assert (metrics.snapshot().lease_age, metrics.snapshot().leases_lost) == (4, 1)
    clock.now += 4
    assert metrics.snapshot().lease_age == 8
    metrics.lease_renewed()
    assert metrics.snapshot().lease_age == 0


def test_outages_of_etcd_are_counted_once_and_timed(metrics: JobMetrics, clock: Clock) -> None:
    metrics.etcd_back()
    for _ in range(2):
        metrics.etcd_away()
        clock.now += 2
        metrics.etcd_away()
        clock.now += 3
        assert metrics.snapshot().etcd_away
        metrics.etcd_back()
        clock.now += 50
    metrics.etcd_away()
    clock.now += 1
    now = metrics.snapshot()
    assert (now.etcd_away, now.etcd_outages, now.etcd_away_for) == (True, 3, 11)


def test_operations_of_etcd_are_bounded(metrics: JobMetrics) -> None:
    for i in range(OPERATIONS * 3):
        metrics.etcd_answered(f"operation {i}", seconds=0.001, failed=i >= OPERATIONS)
    now = metrics.snapshot()
    assert len(now.etcd_requests) == OPERATIONS + 1
    assert sum(now.etcd_requests["other"].counts) == now.etcd_failures["other"] == OPERATIONS * 2


def test_causes_and_states_are_closed_sets(metrics: JobMetrics) -> None:
    metrics.workers({"healthy": 7, "failed": 1})
    with pytest.raises(ValueError, match=r"HEALTHY.*known are unknown, init"):
        metrics.workers({"HEALTHY": 8})
    with pytest.raises(ValueError, match="because"):
        metrics.restarting("because")  # type: ignore[arg-type]
    assert metrics.snapshot().workers == {"healthy": 7, "failed": 1}
    assert metrics.snapshot().restarts == {}


def test_facts_from_many_threads_are_all_counted(metrics: JobMetrics) -> None:
    def tell() -> None:
        for _ in range(300):
            metrics.restarting(RestartCause.OTHER)
            metrics.etcd_answered("put", seconds=0.2)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = metrics.snapshot()
    assert now.restarts == {RestartCause.OTHER: 1200}
    assert sum(now.etcd_requests["put"].counts) == 1200


@given(st.lists(st.sampled_from([*ETCD_BOUNDS, 0.0, 0.0011, 0.3, 9.99, 11.0, 1e6])))
def test_a_bucket_has_all_that_is_not_above_its_bound(values: list[float]) -> None:
    distribution = Distribution.empty(ETCD_BOUNDS)
    for value in values:
        distribution = distribution.plus(value)
    for i, bound in enumerate(ETCD_BOUNDS):
        assert sum(distribution.counts[: i + 1]) == sum(value <= bound for value in values)
    assert sum(distribution.counts) == len(values)


def families(metrics: JobMetrics) -> dict[str, Family]:
    return {family.name: family for family in job_families(metrics.snapshot(), version="1.2")}


def test_samples_are_labelled_with_job_and_node(metrics: JobMetrics) -> None:
    metrics.etcd_answered("put", seconds=0.2)
    metrics.lease_renewed()
    found = families(metrics)
    for family in found.values():
        for sample in family.samples:
            if family.name != "elastic_build_info":
                assert (sample.labels["run_id"], sample.labels["node"]) == ("run", "alpha")
    assert found["elastic_build_info"].samples[0].labels == {"version": "1.2"}
    assert found["elastic_agent_info"].samples[0].labels["node_id"] == "alpha-1"


def test_a_lease_has_an_age_only_where_somebody_confirms_it(metrics: JobMetrics) -> None:
    assert families(metrics).keys() >= {"elastic_lease_ttl_seconds"}
    without = JobMetrics(replace(FACTS, lease_ttl=0))
    for each in (metrics, without):
        each.lease_renewed()
    assert families(metrics)["elastic_lease_ttl_seconds"].samples[0].value == 10
    assert "elastic_lease_age_seconds" in families(metrics)
    assert not families(without).keys() & {"elastic_lease_ttl_seconds", "elastic_lease_age_seconds"}


def test_durations_are_those_that_were_told_last(metrics: JobMetrics) -> None:
    assert "elastic_section_duration_seconds" not in families(metrics)
    metrics.typical_durations({"step": {4: 0.5, 5: 1.0}, "forward": {4: 0.25}})
    shown = families(metrics)["elastic_section_duration_seconds"].samples
    assert [(s.labels["section"], s.labels["rank"], s.value) for s in shown] == [
        ("forward", "4", 0.25),
        ("step", "4", 0.5),
        ("step", "5", 1.0),
    ]
    metrics.typical_durations({})
    assert "elastic_section_duration_seconds" not in families(metrics)


def test_every_cause_and_state_is_shown_from_the_start(metrics: JobMetrics) -> None:
    """What first appears at 1 has no increase that Prometheus could see."""
    found = families(metrics)
    causes = {sample.labels["cause"]: sample.value for sample in found["elastic_restarts"].samples}
    assert causes == dict.fromkeys([cause.value for cause in RestartCause], 0)
    states = {sample.labels["state"]: sample.value for sample in found["elastic_worker_state"].samples}
    assert states == dict.fromkeys(WORKER_STATES, 0)


def test_a_histogram_is_cumulative(metrics: JobMetrics) -> None:
    for seconds in (0.2, 0.25, 3.0, 1e6):
        metrics.entered_world(round=1, world_size=1, nodes=1, seconds=seconds)
    samples = families(metrics)["elastic_rendezvous_duration_seconds"].samples
    buckets = {sample.labels["le"]: sample.value for sample in samples if sample.suffix == "_bucket"}
    assert (buckets["0.1"], buckets["0.25"], buckets["5.0"], buckets["+Inf"]) == (0, 2, 3, 4)
    assert [s.value for s in samples if s.suffix == "_count"] == [4]


def test_names_follow_the_conventions(metrics: JobMetrics) -> None:
    metrics.etcd_answered("put", seconds=0.2)
    metrics.lease_renewed()
    both = [*families(metrics).values(), *value_families({("g", "m"): (2, 3.0, 1.0)}, dropped=0)]
    for family in both:
        assert family.name.startswith("elastic_")
        assert family.help.endswith(".")
        suffixes = {sample.suffix for sample in family.samples}
        assert (
            suffixes
            == {
                "gauge": {""},
                "counter": {"_total"},
                "histogram": {"_bucket", "_count", "_sum"},
                "summary": {"_count", "_sum"},
            }[family.kind]
        )
    assert len({family.name for family in both}) == len(both)


def test_the_number_of_series_of_an_agent_is_bounded(metrics: JobMetrics) -> None:
    for i in range(1000):
        metrics.etcd_answered(f"{i}", seconds=0.2)
        metrics.workers(dict.fromkeys(WORKER_STATES, i))
        metrics.typical_durations({f"{j}": {0: 1.0} for j in range(i)})
        metrics.entered_world(round=i, world_size=i, nodes=i, seconds=i)
        metrics.restarting(list(RestartCause)[i % len(RestartCause)])
    assert sum(len(family.samples) for family in families(metrics).values()) < 400
