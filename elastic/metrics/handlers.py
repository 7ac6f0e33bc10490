"""Where values of `put_metric` and `prof` go: the handlers, each of which one thread or many may call."""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

log = logging.getLogger("elastic.metrics")

LIMIT = 1000
"""How many metrics a `PrometheusMetricHandler` keeps, so that names made from data can't fill the memory."""


class MetricData(NamedTuple):
    """One value: when (seconds since 1970, for people), in which group, of which metric."""

    timestamp: float
    group_name: str
    name: str
    value: float


class MetricHandler(ABC):
    """Takes values. What it raises is told once in the log, and never reaches who measures."""

    @abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Take one value. It runs in the thread that measures, so it should be quick."""


class NullMetricHandler(MetricHandler):
    """Drops every value."""

    def emit(self, metric_data: MetricData) -> None:
        """Nothing."""


class ConsoleMetricHandler(MetricHandler):
    """Prints ``[timestamp][group]: name=value`` to stdout, as torch does."""

    def emit(self, metric_data: MetricData) -> None:
        """Print one line."""
        print(
            f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}",
            flush=True,
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """What has been put of one metric: how many values, their sum, and the last one."""

    count: int = 0
    total: float = 0.0
    last: float = 0.0

    def plus(self, value: float) -> Tally:
        """With one more value."""
        return Tally(self.count + 1, self.total + value, value)


class PrometheusMetricHandler(MetricHandler):
    """Keeps a `Tally` of each metric, which an `Exporter` shows; of `limit` metrics at most."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._dropped = 0

    def emit(self, metric_data: MetricData) -> None:
        """Add one value. TypeError or ValueError where it is no finite number: it would spoil the sum."""
        key, value = (metric_data.group_name, metric_data.name), float(metric_data.value)
        if not math.isfinite(value):
            raise ValueError(f"{value} can't be added up")
        with self._lock:
            tally = self._tallies.get(key)
            if tally is None and len(self._tallies) >= self._limit:
                self._dropped += 1
                first = self._dropped == 1
            else:
                first = False
                self._tallies[key] = (tally or Tally()).plus(value)
        if first:
            log.warning(
                "there are %d metrics already: %s of %s and other new ones are dropped",
                self._limit,
                *key[::-1],
            )

    def tallies(self) -> tuple[dict[tuple[str, str], Tally], int]:
        """The tallies by group and name, and how many values were dropped."""
        with self._lock:
            return dict(self._tallies), self._dropped


PUBLISHED = PrometheusMetricHandler()
"""The handler that goes by the name ``prometheus`` in this process."""
