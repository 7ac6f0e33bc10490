"""From the settings of instruments to the instruments of an agent.

Composition: it loads what is asked for, and whatever cannot be had is one sentence before anything starts.
"""

import importlib
import logging
import shlex
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from elastic.agent.server import Finish, Instrument, WorkerSpec
from elastic.agent.server.node_check import NodeHealth, check_node
from elastic.agent.server.reports import Reports
from elastic.agent.server.stragglers import Stragglers
from elastic.launcher import values
from elastic.launcher.config import LaunchConfig
from elastic.launcher.errors import LaunchError, UsageError
from elastic.launcher.instrument_settings import InstrumentSettings
from elastic.timer.watch import WorkerWatch
from elastic.utils.exit_codes import ExitCode

if TYPE_CHECKING:
    from elastic.agent.server.chronicle import Chronicle
    from elastic.agent.server.liveness import Liveness

__all__ = ["check_this_node", "make_instruments"]

logger = logging.getLogger("elastic.launcher")


def check_this_node(settings: InstrumentSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Have the node check run, if there is one; returns what to publish of its verdict.

    :raises LaunchError: it says that this node is bad.
    """
    if settings.node_check is None:
        return {}
    verdict = check_node(
        shlex.split(settings.node_check),
        settings.node_check_timeout,
        environment=environ,
        machine=socket.gethostname(),
    )
    if not verdict.may_join:
        raise LaunchError(f"{verdict.reason}; this node does not join", ExitCode.BAD_NODE)
    log = logger.info if verdict.health is NodeHealth.GOOD else logger.warning
    log("%s (%.1f s); this node joins", verdict.reason, verdict.seconds)
    return verdict.labels()


def make_instruments(
    config: LaunchConfig, spec: WorkerSpec, *, environ: Mapping[str, str], owner: ExitStack
) -> list[Instrument]:
    """The instruments of an agent, which closes them; else, and what they use besides, `owner` does.

    :raises UsageError: one cannot be had as it was asked for.
    """
    settings = config.instruments
    if config.metrics_cfg:
        _configure_metrics(config.metrics_cfg)
    instruments: list[Instrument] = []
    stragglers = Stragglers(enabled=settings.find_stragglers)
    if settings.metrics_port is not None or config.event_log_handler != "null" or _has_rdzv_handler():
        composer = importlib.import_module("elastic.launcher.chronicle")
        chronicle: Chronicle = composer.make_chronicle(config, spec, owner=owner)
        instruments.append(chronicle)
        watch = _watch(settings, environ, owner=owner)
        measured = chronicle.metrics.typical_durations
        instruments.append(Reports(watch, stragglers, found=chronicle.found, measured=measured))
    else:
        instruments.append(Reports(_watch(settings, environ, owner=owner), stragglers))
    if "elastic.metrics" in sys.modules:  # else nobody can have configured a handler
        published = importlib.import_module("elastic.agent.server.published")
        instruments.append(published.Published(config.role, max_restarts=config.max_restarts))
    port = _health_port(settings, environ)
    if port is not None:
        composer = importlib.import_module("elastic.launcher.health")
        has_etcd = spec.rdzv_handler.get_backend() == "etcd"
        liveness: Liveness = composer.make_liveness(settings.health_host, port, has_etcd=has_etcd)
        owner.callback(liveness.close)
        instruments.append(liveness)
    instruments.append(Finish(config.finish_seconds))
    return instruments


def _configure_metrics(handlers: Mapping[str, str]) -> None:
    metrics = importlib.import_module("elastic.metrics")
    try:
        metrics.initialize_metrics(metrics.MetricsConfig(handlers))
    except (TypeError, ValueError) as error:
        raise UsageError(f"metrics_cfg={handlers!r}: {error}") from error


def _has_rdzv_handler() -> bool:
    """Whether somebody wants to hear of the rendezvous, who then has loaded what it is registered with."""
    events = sys.modules.get("elastic.events")
    return events is not None and bool(events.has_rdzv_handler())


def _watch(settings: InstrumentSettings, environ: Mapping[str, str], *, owner: ExitStack) -> WorkerWatch:
    path = environ.get("TORCHELASTIC_TIMER_FILE") or None
    try:
        watch = WorkerWatch(
            first_report=settings.first_report_timeout,
            sign_of_life=settings.silence_timeout,
            path=path,
            for_torch=environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1",
        )
    except OSError as error:
        why = error if path is None else f"TORCHELASTIC_TIMER_FILE={path}: {error.strerror}"
        raise UsageError(f"workers cannot report to this agent: {why}") from error
    owner.callback(watch.close)
    return watch


def _health_port(settings: InstrumentSettings, environ: Mapping[str, str]) -> int | None:
    text = environ.get("TORCHELASTIC_HEALTH_CHECK_PORT", "")
    if settings.health_port is not None or not text:
        return settings.health_port
    try:
        return values.port(text)
    except ValueError as error:
        raise UsageError(f"TORCHELASTIC_HEALTH_CHECK_PORT={text}: {error}") from None
