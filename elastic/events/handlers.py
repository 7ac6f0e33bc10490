"""Where events go: the destinations that are built in, and plug-ins, each made from its name.

A destination is written ``name`` or ``name:argument``. Plug-ins are entry points of the group
``elastic.events`` whose value is a function from the argument ("" where there is none) to an `EventHandler`,
or to a `logging.Handler`. Only the one that is asked for is loaded, so that a broken plug-in breaks nothing
else. Nothing here has threads or queues: a handler is used by one thread at a time, which `outlet` provides.
"""

from __future__ import annotations

import difflib
import errno
import importlib.metadata
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from elastic.events.api import Event, RdzvEvent
from elastic.events.otel import open_otel

GROUP = "elastic.events"
FILE_BYTES = 64 * 2**20
"""The size at which a file of events is put aside and a new one begun."""
FILES_KEPT = 4
"""How many files that were put aside are kept; older ones are deleted."""


@runtime_checkable
class EventHandler(Protocol):
    """Takes the events of one destination, one at a time, and may block or fail in doing so."""

    def record(self, event: Event | RdzvEvent, /) -> None:
        """Take one event. What it raises is reported once, and harms nobody."""


def create_event_handler(destination: str) -> EventHandler:
    """A new handler for a destination.

    Raises:
        ValueError: The destination is unknown, or its argument is wrong.
        RuntimeError: It is known but can't be used: its plug-in is broken, a package is not installed.
        OSError: Its file can't be opened.
    """
    name, _, argument = destination.partition(":")
    if name in BUILT_IN:
        return BUILT_IN[name](argument)
    entries = importlib.metadata.entry_points(group=GROUP)
    if name not in entries.names:
        known = sorted({*BUILT_IN, *entries.names})
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown destination of events {destination!r}: {hint}known are {', '.join(known)}")
    entry = next(iter(entries.select(name=name)))
    try:
        made = entry.load()(argument)
    except (ValueError, OSError):
        raise
    except Exception as error:  # importing and calling another package's code can raise anything
        raise RuntimeError(
            f"the destination of events {name!r} ({entry.value}) can't be used: {error!r}"
        ) from error
    try:
        return as_event_handler(made)
    except TypeError as error:
        raise RuntimeError(
            f"the destination of events {name!r} ({entry.value}) is broken: {error}"
        ) from error


def as_event_handler(handler: object) -> EventHandler:
    """`handler` itself, or what hands events to it where it is a `logging.Handler`; else TypeError."""
    if isinstance(handler, logging.Handler):
        return LoggingEventHandler(handler)
    if isinstance(handler, EventHandler):
        return handler
    raise TypeError(f"{type(handler).__name__} is no handler of events: it has no method record(event)")


class NullEventHandler:
    """Drops every event."""

    def record(self, event: Event | RdzvEvent, /) -> None:
        """Nothing."""


class ConsoleEventHandler:
    """Writes each event as a line of JSON to what is stderr at that moment."""

    def record(self, event: Event | RdzvEvent, /) -> None:
        """Write one line, at once."""
        sys.stderr.write(event.serialize() + "\n")
        sys.stderr.flush()


class LoggingEventHandler:
    """Hands events to a handler of the logging module, as torch does: the message is the line of JSON.

    The event itself is in the record's attribute ``event``. The level is INFO, and no level set for
    logging keeps events back but the handler's own.
    """

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler

    def record(self, event: Event | RdzvEvent, /) -> None:
        """Hand one event on."""
        line = event.serialize()
        record = logging.LogRecord("elastic.events", logging.INFO, event.name, 0, line, None, None)
        record.event = event
        if record.levelno >= self._handler.level:
            self._handler.handle(record)

    def close(self) -> None:
        """Close the logging handler."""
        self._handler.close()


class _Raising(logging.FileHandler):
    """Raises what goes wrong, where the logging module would print it each time."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - given by logging
        raise  # noqa: PLE0704 - it is called while the error is handled


class _EventFile(_Raising, logging.handlers.RotatingFileHandler):
    """A file that is put aside when it is full."""


class _EventPipe(_Raising):
    """A named pipe, which has no size and no end."""


def _null(argument: str) -> EventHandler:
    _no_argument("null", argument)
    return NullEventHandler()


def _console(argument: str) -> EventHandler:
    _no_argument("console", argument)
    return ConsoleEventHandler()


def _file(argument: str) -> EventHandler:
    """Appends to a file, and puts it aside when it is full. One process at a time may write it."""
    if not argument:
        raise ValueError("the destination of events 'file' needs a path: write file:/path/to/events.jsonl")
    path = Path(argument).expanduser()  # no shell does it behind a colon
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: logging.Handler
        if path.is_fifo():
            _require_reader(path)
            file = _EventPipe(path, encoding="utf-8")
        else:
            file = _EventFile(path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, f"events can't be kept: {error.strerror}", argument) from error
    return LoggingEventHandler(file)


def _require_reader(pipe: Path) -> None:
    """Opening a pipe that nobody reads would wait for a reader, and the job with it: OSError instead."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads that pipe") from error
        raise


def _no_argument(name: str, argument: str) -> None:
    if argument:
        raise ValueError(f"the destination of events {name!r} takes no argument, and got {argument!r}")


BUILT_IN: Mapping[str, Callable[[str], EventHandler]] = {
    "null": _null,
    "console": _console,
    "file": _file,
    "otel": open_otel,
}
"""The destinations that need no plug-in."""
