"""The inside of a worker that can be asked for its stacks: a handler that works even where Python hangs.

The launcher asks with :data:`STACKS_SIGNAL` before it stops a worker, if it was told to; see
:mod:`elastic.multiprocessing.stacks`. Functions register by themselves, and so does a script whose entry
point is decorated with ``record``; another one may call :func:`register_stack_dump`.
"""

import faulthandler
import logging
import os
import signal
from typing import IO

logger = logging.getLogger(__name__)

STACKS_SIGNAL = int(signal.SIGRTMIN) + 6
"""A real-time signal, which no framework and no user of USR1 and USR2 is in the way of."""

STACKS_FILE_VARIABLE = "ELASTIC_STACKS_FILE"
"""Environment variable that names a worker's file; not set where the launcher will not ask."""

_registered: list[IO[bytes]] = []  # open for as long as the handler may need it


def register_stack_dump() -> bool:
    """Let the launcher have the stacks of all threads of this process. Calling it again does nothing.

    Returns:
        Whether it will ever ask: it was started with ``--dump-stacks``, and its file can be written.
    """
    path = os.environ.get(STACKS_FILE_VARIABLE)
    if path and not _registered:
        try:
            file = open(path, "ab")  # noqa: PTH123, SIM115 - kept open, see above
        except OSError as error:
            logger.warning("stacks can't be written to %s: %s", path, error.strerror)
            return False
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
        _registered.append(file)
    return bool(path)
