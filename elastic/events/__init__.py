"""What happened in a job, as events: small values that go, one line each, to a destination chosen by name.

`record` an `Event` at a destination: ``null`` (the default) drops it, ``console`` writes it to stderr,
``file:/path/events.jsonl`` keeps it in files that rotate, ``otel`` hands it to OpenTelemetry, and plug-ins
bring further ones. Recording only queues the event: a destination that is slow, or fails, never holds up or
harms whoever records. `elastic.events.job` builds the events of a job's life. This package never decides
anything, and imports nothing of the project but `elastic.utils`.
"""

from elastic.events.api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from elastic.events.handlers import EventHandler
from elastic.events.recording import (
    close,
    construct_and_record_rdzv_event,
    flush,
    get_logging_handler,
    has_rdzv_handler,
    prepare,
    record,
    record_rdzv_event,
    register_event_handler,
)

__all__ = [
    "Event",
    "EventHandler",
    "EventMetadataValue",
    "EventSource",
    "NodeState",
    "RdzvEvent",
    "close",
    "construct_and_record_rdzv_event",
    "flush",
    "get_logging_handler",
    "has_rdzv_handler",
    "prepare",
    "record",
    "record_rdzv_event",
    "register_event_handler",
]
