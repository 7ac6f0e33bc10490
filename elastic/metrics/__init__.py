"""Numbers about a job: torch's metrics, which go to handlers, and an agent's own, which Prometheus reads.

`put_metric` and `prof` hand values to the handler that `configure` chose for their group; by default they are
dropped. `JobMetrics` is what an agent tells its facts to; `Exporter` serves them, and the values of the
handler `prometheus`, on a loopback port while it runs. It needs the extra ``metrics``; nothing else does.
This package measures and never decides, and imports nothing of the project but `elastic.utils`.
"""

from elastic.metrics.api import (
    DEFAULT_GROUP,
    MetricsConfig,
    MetricStream,
    configure,
    getStream,
    initialize_metrics,
    put_metric,
)
from elastic.metrics.exporter import Exporter, ExporterError
from elastic.metrics.handlers import (
    ConsoleMetricHandler,
    MetricData,
    MetricHandler,
    NullMetricHandler,
    PrometheusMetricHandler,
)
from elastic.metrics.job import JobMetrics
from elastic.metrics.profiling import prof
from elastic.metrics.snapshot import JobFacts, RestartCause

__all__ = [
    "DEFAULT_GROUP",
    "ConsoleMetricHandler",
    "Exporter",
    "ExporterError",
    "JobFacts",
    "JobMetrics",
    "MetricData",
    "MetricHandler",
    "MetricStream",
    "MetricsConfig",
    "NullMetricHandler",
    "PrometheusMetricHandler",
    "RestartCause",
    "configure",
    "getStream",
    "initialize_metrics",
    "prof",
    "put_metric",
]
