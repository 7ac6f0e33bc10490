"""Events as OpenTelemetry log records: the destination ``otel``. Needs the extra ``otel``.

Where the process has set a logger provider up, events go there. Otherwise they are sent by OTLP over HTTP: to
the endpoint that is the argument of the destination (``otel:http://collector:4318/v1/logs``), or, without
one, to where the standard ``OTEL_EXPORTER_OTLP_*`` variables say. OpenTelemetry is loaded only by this
destination.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from elastic.events.api import Event, RdzvEvent

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider

SCOPE = "elastic.events"
"""The name of the instrumentation scope."""


def open_otel(argument: str) -> OtelEventHandler:
    """The handler of the destination.

    Raises:
        ValueError: The argument is no URL.
        RuntimeError: OpenTelemetry is not installed.
    """
    if argument and not argument.startswith(("http://", "https://")):
        raise ValueError(
            f"the destination of events 'otel' has the endpoint {argument!r}: give the whole URL, as in "
            "otel:http://collector:4318/v1/logs, or none"
        )
    try:
        from opentelemetry._logs import get_logger_provider  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415
        from opentelemetry.sdk._logs import LoggerProvider  # noqa: PLC0415
        from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor  # noqa: PLC0415
    except ImportError as error:
        raise RuntimeError(
            f"events can't go to OpenTelemetry, for {error.name} is not installed: "
            "pip install 'tensorplay-elastic[otel]'"
        ) from error
    current = get_logger_provider()
    if not argument and isinstance(current, LoggerProvider):
        return OtelEventHandler(current, owned=False)
    provider = LoggerProvider(shutdown_on_exit=False)
    # One at a time: the thread that hands us events may wait, and so no further thread is needed.
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(endpoint=argument or None)))
    return OtelEventHandler(provider, owned=True)


class OtelEventHandler:
    """Emits each event to a logger provider, which `close` shuts down if it is `owned`."""

    def __init__(self, provider: LoggerProvider, *, owned: bool) -> None:
        self._provider = provider
        self._owned = owned
        self._logger = provider.get_logger(SCOPE)

    def record(self, event: Event | RdzvEvent, /) -> None:
        """Emit one event: the body is its line of JSON, the attributes are its fields."""
        from opentelemetry._logs import SeverityNumber  # noqa: PLC0415

        if isinstance(event, Event):
            time_ns = event.timestamp * 1_000_000
            attributes = {"source": event.source.value, **event.metadata}
        else:
            time_ns = None
            attributes = json.loads(event.serialize())
        self._logger.emit(
            timestamp=time_ns,
            event_name=event.name,
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            body=event.serialize(),
            attributes={key: value for key, value in attributes.items() if value is not None},
        )

    def close(self) -> None:
        """Send what is left."""
        if self._owned:
            self._provider.shutdown()
