"""Which handler the values of a group go to, and putting values.

A metric is named by its group and its name. The group of everything that does not name one is
``torchelastic``: torch's `put_metric` and `prof` and tensorplay's `put_metric` have it, so that what is
configured for it by existing code goes on working. (tensorplay's `prof` alone differs, with ``tp_elastic``.)
"""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Mapping

from elastic.metrics.handlers import (
    PUBLISHED,
    ConsoleMetricHandler,
    MetricData,
    MetricHandler,
    NullMetricHandler,
)
from elastic.utils.aliases import either

log = logging.getLogger("elastic.metrics")

DEFAULT_GROUP = "torchelastic"
"""The group of metrics that do not name one."""

_HANDLERS: Mapping[str, MetricHandler] = {
    "null": NullMetricHandler(),
    "console": ConsoleMetricHandler(),
    "prometheus": PUBLISHED,
}
_by_group: dict[str, MetricHandler] = {}
_default: MetricHandler = _HANDLERS["null"]
_told: set[str] = set()


class MetricsConfig:
    """Which handler each group's values go to: ``null``, ``console`` or ``prometheus``.

    Args:
        params: Names of handlers by group. The key ``default_handler`` stands for all groups that have no
            other. Also by the keyword ``cfg``.
        default_handler: The handler of groups that have no other. Default: ``null``, as without any
            configuration, since a launcher that is not asked to should print nothing.

    Raises:
        TypeError: Both ``params`` and ``cfg`` are given, or it is no mapping.
        ValueError: There is no such handler.
    """

    __slots__ = ("default_handler", "params")

    def __init__(
        self,
        params: Mapping[str, str] | None = None,
        default_handler: str = "null",
        cfg: Mapping[str, str] | None = None,
    ) -> None:
        given = either("a MetricsConfig", "params", params, "cfg", cfg)
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                f"params is {given!r}: give names of handlers by group, as in {{'mine': 'console'}}"
            )
        self.params = dict(given or {})
        self.default_handler = self.params.get("default_handler", default_handler)
        for group, name in {"default_handler": self.default_handler, **self.params}.items():
            if name not in _HANDLERS:
                near = difflib.get_close_matches(name, _HANDLERS, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                known = ", ".join(_HANDLERS)
                raise ValueError(
                    f"unknown handler of metrics {name!r} for {group!r}: {hint}known are {known}"
                )

    @property
    def cfg(self) -> dict[str, str]:
        """Another name of `params`."""
        return self.params


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """Configure all that `cfg` says; without one, nothing changes."""
    if cfg is None:
        return
    configure(_HANDLERS[cfg.default_handler])
    for group, name in cfg.params.items():
        if group != "default_handler":
            configure(_HANDLERS[name], group)


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Send the values of `group` to `handler`; without a group, those of all groups that have no other.

    TypeError where it is no handler; names of handlers are for a `MetricsConfig`.
    """
    if not callable(getattr(handler, "emit", None)):
        raise TypeError(
            f"{handler!r} is no handler of metrics: give an object with emit(metric_data), such as "
            "ConsoleMetricHandler()"
        )
    global _default  # noqa: PLW0603 - there is one a process, as in both peers
    if group is None:
        _default = handler
    else:
        _by_group[group] = handler


class MetricStream:
    """A group and the handler of its values."""

    __slots__ = ("group_name", "handler")

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name = group_name
        self.handler = handler

    @property
    def name(self) -> str:
        """Another name of `group_name`."""
        return self.group_name

    def add_value(self, metric_name: str, metric_value: float) -> None:
        """Hand one value to the handler. What the handler raises is told once, and goes no further."""
        try:
            self.handler.emit(MetricData(time.time(), self.group_name, metric_name, metric_value))
        except Exception as error:  # a handler is anybody's code, and must not harm what it measures
            kind = type(self.handler).__qualname__
            if kind not in _told:
                _told.add(kind)
                log.warning(
                    "%s did not take %s of %s: %r; further failures are not told",
                    kind,
                    metric_name,
                    self.group_name,
                    error,
                )


def getStream(group: str) -> MetricStream:  # noqa: N802 - the name that both peers have
    """The stream of a group, as it is configured now."""
    return MetricStream(group, _by_group.get(group, _default))


def put_metric(
    metric_name: str | None = None,
    metric_value: float | None = None,
    metric_group: str | None = None,
    *,
    name: str | None = None,
    value: float | None = None,
    group: str | None = None,
    interval_ms: float | None = None,  # noqa: ARG001 - see below
) -> None:
    """Put one value of a metric. It never fails for its handler's sake.

    Args:
        metric_name: Which metric. Also by the keyword ``name``.
        metric_value: Its value. Also by the keyword ``value``.
        metric_group: Its group; default: `DEFAULT_GROUP`. Also by the keyword ``group``.
        interval_ms: Accepted since tensorplay has it; it means nothing there either.

    Raises:
        TypeError: Name or value is missing, or something is given under both its names.
    """
    which = either("a metric", "metric_name", metric_name, "name", name)
    amount = either("a metric", "metric_value", metric_value, "value", value)
    if which is None or amount is None:
        raise TypeError("a metric needs a name and a value")
    in_group = either("a metric", "metric_group", metric_group, "group", group) or DEFAULT_GROUP
    getStream(in_group).add_value(which, amount)
