"""What an agent is watched by, and watches its workers with: the settings, as one value that is checked once.

Pure. What becomes of them is in :mod:`elastic.launcher.instruments`.
"""

import math
import shlex
from contextlib import suppress
from dataclasses import dataclass

from elastic.launcher import values
from elastic.launcher.errors import UsageError
from elastic.launcher.field_types import check_types

__all__ = ["InstrumentSettings"]

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
            if port is not None and (type(port) is not int or not 0 <= port <= 65535):
                raise UsageError(f"{name}={port!r} is no port; give a number from 0 (any free one) to 65535")
        for name in ("metrics_host", "health_host"):
            self._check_host(name, getattr(self, name))
        for name in ("first_report_timeout", "silence_timeout", "node_check_timeout"):
            if not isinstance(getattr(self, name), int | float):
                raise UsageError(f"{name}={getattr(self, name)!r} is no duration; give a number of seconds")
        for name in ("first_report_timeout", "silence_timeout"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name}={getattr(self, name)} is no duration; make it 0 or more")
        if not 0 < self.node_check_timeout < math.inf:
            raise UsageError(f"node_check_timeout={self.node_check_timeout} is no duration; make it positive")
        if self.node_check is not None:
            if not isinstance(self.node_check, str):
                raise UsageError(
                    f"node_check {self.node_check!r} is no text; write it as for a shell: 'check --quick'"
                )
            try:
                words = shlex.split(self.node_check)
            except ValueError as error:
                raise UsageError(f"node_check {self.node_check!r} is no command: {error}") from None
            if not words:
                raise UsageError("node_check is empty; name a program")
        check_types(self)

    @staticmethod
    def _check_host(name: str, host: str) -> None:
        """An empty one would be all addresses of the machine, which somebody must ask for by name."""
        if isinstance(host, str):
            with suppress(ValueError):
                values.host(host)
                return
        raise UsageError(
            f"{name}={host!r} is no host; write a name or an address alone, as in 127.0.0.1 or ::1"
        )
