"""For the script that a worker runs: notice of a restart that is near, so that no step is lost by it.

    import elastic.worker

    notice = elastic.worker.notice()
    while training:
        step()
        if agreed_by_all_ranks(notice.pending):
            save_checkpoint()         # and a barrier, so that every rank has saved
            notice.acknowledge()
            notice.wait_for_end()     # the agent stops this worker, and starts it again in the new world

Every node of the world gives notice at about the same time, but a rank may see it a step before another
does: let the ranks agree, for instance by an all-reduce with MIN, before they act on it. Without
``--notice-timeout``, and without ``elastic``, there is never a notice, and all of this does nothing.

Standard library only; it imports nothing else of ``elastic``. Scripts in other languages do the same by
hand: the notice is there when the file ``$ELASTIC_NOTICE_FILE`` exists (JSON: ``reason``, ``deadline``),
and ``basename "$ELASTIC_NOTICE_FILE" > "$ELASTIC_NOTICE_ACKNOWLEDGE"`` acknowledges it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

__all__ = ["Notice", "notice"]

_LONGEST_STOP = 60.0  # seconds from the deadline until a worker that waits to be stopped gives up waiting


class Notice:
    """The notice to one worker, whether it has come or not. Looking at it costs one look at a file's name.

    `file` is there once the notice has come; `acknowledge` is the pipe to the agent. Without them there is
    never a notice.
    """

    def __init__(self, file: str | os.PathLike[str] | None, pipe: str | os.PathLike[str] | None) -> None:
        self._file = None if file is None else Path(file)
        self._pipe = None if pipe is None else Path(pipe)

    @property
    def pending(self) -> bool:
        """Whether this worker will be stopped soon, and the agent waits for its acknowledgement."""
        return self._file is not None and self._file.exists()

    @property
    def reason(self) -> str:
        """Why, in words; empty while there is no notice."""
        return str(self._content().get("reason", ""))

    @property
    def deadline(self) -> float | None:
        """When the agent stops waiting, as `time.monotonic()` on this machine; None: there is no notice."""
        deadline = self._content().get("deadline")
        return None if deadline is None else float(deadline)

    def acknowledge(self) -> None:
        """Tell the agent that this worker may be stopped now. It does nothing where there is no notice.

        Do it only when whatever must not be lost is saved, on every rank: the first node whose workers have
        all acknowledged stops them, and then the others are stopped too. May be called again.
        """
        if self._file is None or self._pipe is None or not self.pending:
            return
        try:
            fd = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return  # the agent is gone, and this worker soon will be
        try:
            os.write(fd, self._file.name.encode() + b"\n")
        except BlockingIOError:
            return  # thousands of others were not read yet: the agent goes by the deadline
        finally:
            os.close(fd)

    def wait_for_end(self) -> None:
        """Do nothing until the agent stops this worker, at the latest a while after the deadline.

        To be called after `acknowledge`, where further steps would be lost. It returns at once where there
        is no notice.
        """
        deadline = self.deadline
        if deadline is not None:
            # SIGTERM comes long before, and ends it by the script's own handler or without one.
            time.sleep(max(0.0, deadline - time.monotonic()) + _LONGEST_STOP)

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads((self._file or Path(os.devnull)).read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def notice() -> Notice:
    """The notice to this worker, as its environment names it."""
    return Notice(os.environ.get("ELASTIC_NOTICE_FILE"), os.environ.get("ELASTIC_NOTICE_ACKNOWLEDGE"))
