"""The chronicle of an agent, put together: where its events go, and who may read its metrics.

Composition. Loaded only for a job that wants either, since most want neither. Steps of the rendezvous also go
to the handler that is registered for those, if there is one.
"""

import logging
import os
import socket
from contextlib import ExitStack
from functools import partial

from elastic import events, metrics
from elastic.agent.server import WorkerSpec
from elastic.agent.server.chronicle import Chronicle
from elastic.events import job
from elastic.events.steps import rdzv_event
from elastic.launcher.config import LaunchConfig
from elastic.launcher.entrypoint import entrypoint_name
from elastic.launcher.errors import UsageError
from elastic.rendezvous import DynamicRendezvousHandler, RendezvousHandler
from elastic.rendezvous.naming import name_of

__all__ = ["make_chronicle"]

logger = logging.getLogger("elastic.launcher")


def make_chronicle(config: LaunchConfig, spec: WorkerSpec, *, owner: ExitStack) -> Chronicle:
    """A chronicle that the rendezvous tells of its changes. `owner` closes what it uses.

    :raises UsageError: events cannot go where they are to, or nothing can listen at the port for metrics.
    """
    handler = spec.rdzv_handler
    hostname = socket.gethostname()
    node = name_of(handler.node_id) or hostname
    if config.event_log_handler != "null":
        _prepare_events(config.event_log_handler)
    owner.callback(events.flush)  # a caller may have registered handlers, and launch again
    told = metrics.JobMetrics(
        metrics.JobFacts(
            run_id=handler.get_run_id(),
            node=node,
            node_id=handler.node_id,
            role=config.role,
            rdzv_backend=handler.get_backend(),
            min_nodes=config.min_nodes,
            max_nodes=config.max_nodes,
            lease_ttl=_lease_ttl(handler),
        )
    )
    if config.instruments.metrics_port is not None:
        exporter = _exporter(told, config.instruments.metrics_port, host=config.instruments.metrics_host)
        owner.callback(exporter.stop)
        logger.info("metrics are at %s", exporter.url)
    chronicle = Chronicle(
        job.Origin(
            run_id=handler.get_run_id(),
            node=node,
            node_id=handler.node_id,
            hostname=hostname,
            role=config.role,
            rdzv_backend=handler.get_backend(),
            entry_point=_entry_point(spec),
        ),
        record=partial(_record, destination=config.event_log_handler),
        metrics=told,
    )
    handler.observe(chronicle.changed)
    return chronicle


def _record(event: events.Event, destination: str) -> None:
    events.record(event, destination)
    if events.has_rdzv_handler():
        step = rdzv_event(event, pid=os.getpid())
        if step is not None:
            events.record_rdzv_event(step)


def _lease_ttl(handler: RendezvousHandler) -> float:
    """Seconds, 0 without etcd: over other stores nobody confirms a lease."""
    if handler.get_backend() != "etcd" or not isinstance(handler, DynamicRendezvousHandler):
        return 0.0
    return handler.settings.ttl.total_seconds()


def _prepare_events(destination: str) -> None:
    try:
        events.prepare(destination)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"event_log_handler {destination!r}: {why}; name another file") from error
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"event_log_handler {destination!r}: {error}") from error


def _exporter(told: metrics.JobMetrics, port: int, *, host: str) -> metrics.Exporter:
    exporter = metrics.Exporter(told, port, host=host)
    try:
        exporter.start()
    except metrics.ExporterError as error:
        raise UsageError(str(error)) from error
    return exporter


def _entry_point(spec: WorkerSpec) -> str:
    if spec.entrypoint is None:
        raise AssertionError("the spec has checked that there is an entrypoint")
    return entrypoint_name(spec.entrypoint, spec.args)
