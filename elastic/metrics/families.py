"""From values to what Prometheus reads: names, kinds and samples. Pure.

Every sample has the labels ``run_id`` and ``node``, one value each for an agent. The other labels have closed
sets of values, or are bounded where they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from elastic.metrics.snapshot import WORKER_STATES, Distribution, RestartCause, Snapshot

Kind = Literal["gauge", "counter", "histogram", "summary"]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One number: what is put after the family's name, labels, value."""

    suffix: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its samples. The name of a counter is without ``_total``."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]


def job_families(now: Snapshot, *, version: str) -> Iterator[Family]:
    """The metrics of an agent."""
    facts = now.facts
    for family in _job_families(now):
        yield with_labels(family, {"run_id": facts.run_id, "node": facts.node})
    about = {
        "run_id": facts.run_id,
        "node": facts.node,
        "node_id": facts.node_id,
        "role": facts.role,
        "rdzv_backend": facts.rdzv_backend,
    }
    yield _gauge("elastic_agent_info", "What this agent is; always 1.", 1, about)
    yield _gauge("elastic_build_info", "What this agent runs; always 1.", 1, {"version": version})


def _job_families(now: Snapshot) -> Iterator[Family]:
    yield _gauge("elastic_in_world", "1 while this node is in a world, else 0.", now.in_world)
    yield _gauge("elastic_round", "The last round that this node was in; 0 before the first.", now.round)
    yield _gauge("elastic_world_size", "Workers in the world that this node is in.", now.world_size)
    yield _gauge("elastic_world_nodes", "Nodes in the world that this node is in.", now.nodes)
    yield _gauge("elastic_min_nodes", "Nodes that a world of this job needs.", now.facts.min_nodes)
    yield _gauge("elastic_max_nodes", "Nodes that a world of this job may have.", now.facts.max_nodes)
    yield _gauge("elastic_nodes_waiting", "Nodes that wait to be let into the world.", now.waiting)
    yield _gauge("elastic_spares", "Nodes for which the world has no place.", now.spares)
    yield _gauge("elastic_healthy", "1 while this node's workers are found healthy, else 0.", now.healthy)
    yield Family(
        "elastic_worker_state",
        "gauge",
        "Workers of this node, by state.",
        tuple(Sample("", {"state": state}, now.workers.get(state, 0)) for state in WORKER_STATES),
    )
    if now.durations:
        yield Family(
            "elastic_section_duration_seconds",
            "gauge",
            "How long the latest steps, or other sections, of a worker typically took, by section and rank.",
            tuple(
                Sample("", {"section": name, "rank": str(rank)}, seconds)
                for name, ranks in sorted(now.durations.items())
                for rank, seconds in sorted(ranks.items())
            ),
        )
    yield _counter("elastic_worlds_entered", "Worlds that this node has been in.", now.worlds_entered)
    yield Family(
        "elastic_restarts",
        "counter",
        "Times that this node's workers were stopped to be started anew, by cause.",
        tuple(Sample("_total", {"cause": cause.value}, now.restarts.get(cause, 0)) for cause in RestartCause),
    )
    yield Family(
        "elastic_rendezvous_duration_seconds",
        "histogram",
        "How long this node waited for each world.",
        tuple(_histogram(now.rendezvous, {})),
    )
    yield _counter("elastic_training_seconds", "Seconds in which this node's workers ran.", now.training)
    yield _counter(
        "elastic_training_time_lost_seconds",
        "Seconds from the end of this node's workers to the start of the next ones.",
        now.lost,
    )
    yield from _etcd_families(now)


def _etcd_families(now: Snapshot) -> Iterator[Family]:
    if now.facts.lease_ttl:
        yield _gauge("elastic_lease_ttl_seconds", "Age at which etcd ends the lease.", now.facts.lease_ttl)
        # Where etcd holds no lease, nobody confirms one either, and its age would only grow.
        if now.lease_age is not None:
            yield _gauge(
                "elastic_lease_age_seconds",
                "Seconds since etcd last confirmed this node's lease.",
                now.lease_age,
            )
    yield _counter("elastic_lease_losses", "Times that this node's lease was lost.", now.leases_lost)
    yield _gauge("elastic_etcd_away", "1 while etcd does not answer this node, else 0.", now.etcd_away)
    yield _counter("elastic_etcd_outages", "Times that etcd stopped answering this node.", now.etcd_outages)
    yield _counter(
        "elastic_etcd_away_seconds", "Seconds in which etcd did not answer this node.", now.etcd_away_for
    )
    if now.etcd_requests:
        yield Family(
            "elastic_etcd_request_duration_seconds",
            "histogram",
            "How long requests of this node to etcd took, those that failed too.",
            tuple(
                sample
                for operation, durations in sorted(now.etcd_requests.items())
                for sample in _histogram(durations, {"operation": operation})
            ),
        )
        yield Family(
            "elastic_etcd_request_failures",
            "counter",
            "Requests of this node to etcd that failed.",
            tuple(
                Sample("_total", {"operation": operation}, count)
                for operation, count in sorted(now.etcd_failures.items())
            ),
        )


def value_families(
    tallies: Mapping[tuple[str, str], tuple[int, float, float]], *, dropped: int
) -> Iterator[Family]:
    """Values of `put_metric`: `tallies` has count, sum and last value by group and name."""
    named = [({"group": group, "name": name}, *tally) for (group, name), tally in sorted(tallies.items())]
    if named:
        yield Family(
            "elastic_metric",
            "summary",
            "Values that were put of a metric.",
            tuple(
                sample
                for labels, count, total, _ in named
                for sample in (Sample("_count", labels, count), Sample("_sum", labels, total))
            ),
        )
        yield Family(
            "elastic_metric_last",
            "gauge",
            "The value that was put last of a metric.",
            tuple(Sample("", labels, last) for labels, _, _, last in named),
        )
    yield _counter("elastic_metric_values_dropped", "Values of metrics beyond the limit.", dropped)


def with_labels(family: Family, labels: Labels) -> Family:
    """The family with further labels on each sample."""
    return replace(family, samples=tuple(replace(s, labels={**labels, **s.labels}) for s in family.samples))


def _gauge(name: str, text: str, value: float, labels: Labels | None = None) -> Family:
    return Family(name, "gauge", text, (Sample("", labels or {}, value),))


def _counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, (Sample("_total", {}, value),))


def _histogram(durations: Distribution, labels: Labels) -> Iterator[Sample]:
    bounds = [*(repr(bound) for bound in durations.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(durations.counts), strict=True):
        yield Sample("_bucket", {**labels, "le": bound}, count)
    yield Sample("_count", labels, sum(durations.counts))
    yield Sample("_sum", labels, durations.total)
