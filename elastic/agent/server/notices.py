"""The board on which an agent tells its workers that a restart is near, and hears that they are ready.

A directory: one file for each worker, which is there once there is a notice for it, and a named pipe into
which a worker writes the name of its file to acknowledge. :mod:`elastic.worker` is the other side. It
decides nothing, and waits for nothing: `fileno` is readable when somebody has acknowledged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from elastic.utils.scratch import Scratch

_READ_BYTES = 65536


class NoticeBoard:
    """The board of one agent, in a new temporary directory. The owner closes it.

    Raises OSError where the directory or the pipe cannot be made.
    """

    def __init__(self) -> None:
        self._scratch = Scratch("notice")
        self._directory = self._scratch.path
        self._pipe = self._directory / "acknowledge"
        self._fd = -1
        self._round = 0
        self._unread = b""
        self._acknowledged: set[int] = set()
        try:
            os.mkfifo(self._pipe, mode=0o600)
            # Also for writing, so that it never comes to an end while no worker has it open.
            self._fd = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._fd

    def begin(self, round_number: int) -> None:
        """Forget notices and acknowledgements of an earlier round."""
        for path in self._directory.glob("*-*"):
            path.unlink(missing_ok=True)
        self._round = round_number
        self._acknowledged.clear()

    def environment(self, local_rank: int) -> dict[str, str]:
        """The variables by which a worker of this round finds the board."""
        return {
            "ELASTIC_NOTICE_FILE": str(self._directory / self._name(local_rank)),
            "ELASTIC_NOTICE_ACKNOWLEDGE": str(self._pipe),
        }

    def post(self, local_ranks: Iterable[int], *, reason: str, deadline: float) -> None:
        """Give those workers notice. `deadline` is in seconds of the monotonic clock, which they share."""
        text = json.dumps({"reason": reason, "deadline": deadline})
        for local_rank in local_ranks:
            partial = self._directory / f".{self._name(local_rank)}"
            partial.write_text(text)
            partial.replace(self._directory / self._name(local_rank))

    def acknowledged(self) -> frozenset[int]:
        """The local ranks that have acknowledged so far in this round. Never blocks."""
        names = {self._name(local_rank): local_rank for local_rank in self._told()}
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                break
            *lines, rest = (self._unread + data).split(b"\n")
            self._unread = rest[-_READ_BYTES:]
            # What is not the name of a notice of this round comes from an earlier one, or a stranger.
            told = (line.decode("utf-8", "replace").strip() for line in lines)
            self._acknowledged.update(names[name] for name in told if name in names)
        return frozenset(self._acknowledged)

    def close(self) -> None:
        """Remove it. May be called again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self._scratch.close()

    def _name(self, local_rank: int) -> str:
        return f"{self._round}-{local_rank}"

    def _told(self) -> list[int]:
        mark = f"{self._round}-"
        return [int(p.name.removeprefix(mark)) for p in self._directory.iterdir() if p.name.startswith(mark)]


class Notices:
    """The notices of an agent to its workers, on a board that is made when it is first needed.

    `timeout` is for how many seconds workers may save; 0: no notice is ever given, and there is no board.
    """

    def __init__(self, timeout: float) -> None:
        self.are_given = timeout > 0
        self._board: NoticeBoard | None = None

    def begin(self, round_number: int) -> None:
        """New workers are about to be started. Raises OSError where the board cannot be made."""
        if self.are_given:
            self._board = self._board or NoticeBoard()
            self._board.begin(round_number)

    def environment(self, local_rank: int) -> dict[str, str]:
        """The variables by which a worker finds the board."""
        return {} if self._board is None else self._board.environment(local_rank)

    def give(self, local_ranks: Iterable[int], *, reason: str, deadline: float) -> None:
        """See `NoticeBoard.post`."""
        self._there.post(local_ranks, reason=reason, deadline=deadline)

    def acknowledged(self) -> frozenset[int]:
        return self._there.acknowledged()

    def fileno(self) -> int:
        return self._there.fileno()

    def close(self) -> None:
        if self._board is not None:
            self._board.close()

    @property
    def _there(self) -> NoticeBoard:
        if self._board is None:
            raise AssertionError("begin() comes first, and only where notices are given")
        return self._board
