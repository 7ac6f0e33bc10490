"""What an agent is watched by, and watches its workers with: settings, and how they become instruments.

`InstrumentSettings` is a value, checked once. `make_instruments` is composition: it loads what is asked for
and nothing else, and whatever cannot be had is one sentence before anything starts.
"""

import importlib
import logging
import math
import shlex
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from elastic.agent.server import Instrument
from elastic.launcher import values
from elastic.launcher.errors import LaunchError, UsageError
from elastic.rendezvous import RendezvousHandler
from elastic.utils.exit_codes import ExitCode

__all__ = ["InstrumentSettings", "check_this_node", "make_instruments"]

logger = logging.getLogger("elastic.launcher")

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentSettings:
    """Settings; durations are seconds.

    ``metrics_port``, ``metrics_host``
        where Prometheus can read this agent's metrics; None: nowhere, 0: on any free port.
    ``health_port``, ``health_host``
        where health checks are answered; None: ``TORCHELASTIC_HEALTH_CHECK_PORT``, else nowhere.
    ``node_check``, ``node_check_timeout``
        a command that says, before this node joins, whether it is fit to; and how long that may take.
    ``first_report_timeout``, ``silence_timeout``
        how long a worker may take to its first report (:mod:`elastic.worker`), and from one report to the
        next; then it counts as failed. 0: as long as it wants.
    ``find_stragglers``
        whether workers that report their steps are compared with each other.

    :raises UsageError: one sentence, for the first setting that is wrong.
    """

    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    health_port: int | None = None
    health_host: str = LOOPBACK
    node_check: str | None = None
    node_check_timeout: float = 60.0
    first_report_timeout: float = 0.0
    silence_timeout: float = 0.0
    find_stragglers: bool = True

    def __post_init__(self) -> None:
        for name in ("metrics_port", "health_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise UsageError(f"{name}={port} is no port; give a number from 0 (any free one) to 65535")
        for name in ("first_report_timeout", "silence_timeout"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name}={getattr(self, name)} is no duration; make it 0 or more")
        if not 0 < self.node_check_timeout < math.inf:
            raise UsageError(f"node_check_timeout={self.node_check_timeout} is no duration; make it positive")
        if self.node_check is not None:
            try:
                words = shlex.split(self.node_check)
            except ValueError as error:
                raise UsageError(f"node_check {self.node_check!r} is no command: {error}") from None
            if not words:
                raise UsageError("node_check is empty; name a program")


def check_this_node(settings: InstrumentSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Have the node check run, if there is one; returns what to publish of its verdict.

    :raises LaunchError: it says that this node is bad.
    """
    if settings.node_check is None:
        return {}
    checker = importlib.import_module("elastic.agent.server.node_check")
    verdict = checker.check_node(
        shlex.split(settings.node_check),
        settings.node_check_timeout,
        environment=environ,
        machine=socket.gethostname(),
    )
    if not verdict.may_join:
        raise LaunchError(f"{verdict.reason}; this node does not join", ExitCode.BAD_NODE)
    log = logger.info if verdict.health is checker.Health.GOOD else logger.warning
    log("%s (%.1f s); this node joins", verdict.reason, verdict.seconds)
    return dict(verdict.labels())


def make_instruments(
    settings: InstrumentSettings,
    handler: RendezvousHandler,
    *,
    job: Mapping[str, Any],
    event_destination: str,
    environ: Mapping[str, str],
    owner: ExitStack,
) -> list[Instrument]:
    """The instruments of an agent, which closes them; else, and what they use besides, `owner` does.

    :param job: ``role``, ``entry_point``, ``min_nodes`` and ``max_nodes``, for events and metrics to tell.
    :raises UsageError: one cannot be had as it was asked for.
    """
    instruments: list[Instrument] = []
    chronicle = None
    if settings.metrics_port is not None or event_destination != "null":
        chronicle = _chronicle(settings, handler, job=job, destination=event_destination, owner=owner)
        instruments.append(chronicle)
    reports = importlib.import_module("elastic.agent.server.reports")
    watch = importlib.import_module("elastic.timer.watch")
    stragglers = importlib.import_module("elastic.agent.server.stragglers")
    try:
        workers = watch.WorkerWatch(
            first_report=settings.first_report_timeout,
            sign_of_life=settings.silence_timeout,
            path=environ.get("TORCHELASTIC_TIMER_FILE") or None,
            for_torch=environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1",
        )
    except OSError as error:
        raise UsageError(f"workers cannot report to this agent: {error}") from error
    owner.callback(workers.close)
    instruments.append(
        reports.Reports(
            workers,
            stragglers.Stragglers(enabled=settings.find_stragglers),
            **({} if chronicle is None else {"found": chronicle.found}),
        )
    )
    port = _health_port(settings, environ)
    if port is not None:
        liveness = _liveness(settings.health_host, port, handler)
        owner.callback(liveness.close)
        instruments.append(liveness)
    return instruments


def _chronicle(
    settings: InstrumentSettings,
    handler: RendezvousHandler,
    *,
    job: Mapping[str, Any],
    destination: str,
    owner: ExitStack,
) -> Any:
    events = importlib.import_module("elastic.events")
    metrics = importlib.import_module("elastic.metrics")
    chronicle = importlib.import_module("elastic.agent.server.chronicle")
    hostname = socket.gethostname()
    backend, node_id = handler.get_backend(), handler.node_id
    node = chronicle.name_of(node_id) or hostname
    if destination != "null":
        try:
            events.prepare(destination)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"event_log_handler {destination!r}: {why}; name another file") from error
        except (ValueError, RuntimeError) as error:
            raise UsageError(f"event_log_handler {destination!r}: {error}") from error
        owner.callback(events.close)
    told = metrics.JobMetrics(
        metrics.JobFacts(
            run_id=handler.get_run_id(),
            node=node,
            node_id=node_id,
            role=job["role"],
            rdzv_backend=backend,
            min_nodes=job["min_nodes"],
            max_nodes=job["max_nodes"],
        )
    )
    if settings.metrics_port is not None:
        exporter = metrics.Exporter(told, settings.metrics_port, host=settings.metrics_host)
        try:
            exporter.start()
        except metrics.ExporterError as error:
            raise UsageError(str(error)) from error
        owner.callback(exporter.stop)
        logger.info("metrics are at %s", exporter.url)
    made = chronicle.Chronicle(
        events.job.Origin(
            run_id=handler.get_run_id(),
            node=node,
            node_id=node_id,
            hostname=hostname,
            role=job["role"],
            rdzv_backend=backend,
            entry_point=job["entry_point"],
        ),
        record=lambda event: events.record(event, destination),
        metrics=told,
    )
    handler.observe(made.changed)
    return made


def _health_port(settings: InstrumentSettings, environ: Mapping[str, str]) -> int | None:
    text = environ.get("TORCHELASTIC_HEALTH_CHECK_PORT", "")
    if settings.health_port is not None or not text:
        return settings.health_port
    try:
        return values.port(text)
    except ValueError as error:
        raise UsageError(f"TORCHELASTIC_HEALTH_CHECK_PORT={text}: {error}") from None


def _liveness(host: str, port: int, handler: RendezvousHandler) -> Instrument:
    health = importlib.import_module("elastic.agent.server.health")
    liveness = importlib.import_module("elastic.agent.server.liveness")
    try:
        server = health.HealthServer(host, port)
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from error
    where = f"[{server.address[0]}]" if ":" in server.address[0] else server.address[0]
    logger.info("health checks are answered at http://%s:%d/healthz", where, server.address[1])
    instrument: Instrument = liveness.Liveness(server, has_etcd=handler.get_backend() == "etcd")
    return instrument
