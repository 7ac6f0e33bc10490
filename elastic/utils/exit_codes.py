"""The exit codes of the project's commands that are not a worker's own; 69 to 76 are those of sysexits.h."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """See :mod:`elastic.launcher.exit_codes` for the whole table."""

    SUCCESS = 0
    NOT_FOUND = 1
    USAGE = 2
    UNAVAILABLE = 69
    INTERNAL = 70
    BAD_NODE = 71
    TIMEOUT = 75
    STATE = 76
