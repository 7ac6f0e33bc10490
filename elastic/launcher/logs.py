"""How the launcher speaks: one line of text a message, on stderr.

Adapter over :mod:`logging`; only the command calls it. A program that launches from Python sets up its
logging as it likes.
"""

import logging
from collections.abc import Mapping

from elastic.launcher.errors import UsageError

__all__ = ["set_up"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up(environ: Mapping[str, str]) -> None:
    """Send the package's messages to stderr, from the level that ``LOGLEVEL`` names (INFO).

    :raises UsageError: LOGLEVEL is no level.
    """
    level = environ.get("LOGLEVEL") or "INFO"
    logger = logging.getLogger("elastic")
    try:
        logger.setLevel(int(level) if level.isdecimal() else level.upper())
    except ValueError:
        raise UsageError(
            f"LOGLEVEL={level} is no level; write DEBUG, INFO, WARNING, ERROR or CRITICAL"
        ) from None
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    logger.propagate = False
