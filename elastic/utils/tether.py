"""A tether: no process of ours outlives its owner, however the owner ends.

The owner (an agent) starts one small helper process and keeps the write end of a pipe to it. The
helper (:mod:`elastic.utils.tether_helper`) learns of the owner's end from that pipe and from a pidfd, so
it also learns of ``kill -9``, the OOM killer and a crash of the interpreter. It then asks the held sessions
to end, kills what is left after a short grace, and sweeps until no process of the owner is left.

Who is "of the owner": members of a held session, their descendants, and every process that was born
with the owner's marker in its environment (:attr:`Tether.environment`), which a ``setsid`` or a
double fork doesn't shed. Nothing else is ever signalled (see :mod:`elastic.utils.processes`). The helper
loads this module without site-packages, so it may import the standard library, and parts of ours that need no
more. Linux 5.3 or newer.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType

from elastic.utils.processes import Process, list_processes, read_process

MARKER = "ELASTIC_TETHER"
"""Environment variable that marks a process: the ids of the tethers it hangs on, joined by ``:``."""

CLOSE_SECONDS = 2.0
"""How long :meth:`Tether.close` waits for the helper to end by itself."""

_HELPER = "import sys; sys.path.append(sys.argv[1]); from elastic.utils.tether_helper import main; main()"
_ROOT = Path(__file__).absolute().parents[2]


def carries_marker(pid: int, tether_id: str) -> bool:
    """Whether the process was born with this tether's id in its environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or it is another user's: not ours in either case
        return False
    prefix = f"{MARKER}=".encode()
    wanted = tether_id.encode()
    return any(
        wanted in entry[len(prefix) :].split(b":")
        for entry in environment.split(b"\0")
        if entry.startswith(prefix)
    )


def find_members(
    holds: Mapping[int, int], tether_id: str, *, since: int = 0, excluding: Collection[int] = ()
) -> list[Process]:
    """Return the living processes of a job.

    ``holds`` maps each held session to the start time of its leader. A session whose leader is no
    longer that process is not trusted, since its number may have been given anew; the marker still
    finds its members. ``since`` (ticks since boot) spares looking into processes that are older.
    """
    table = list_processes()
    sessions = {sid for sid, started in holds.items() if sid in table and table[sid].started == started}
    skipped = {os.getpid(), *excluding}
    found = {
        pid
        for pid, process in table.items()
        if process.started >= since
        and pid not in skipped
        and (process.session in sessions or carries_marker(pid, tether_id))
    }
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    pending = list(found)
    while pending:
        for pid in children.get(pending.pop(), ()):
            if pid not in found and pid not in skipped:
                found.add(pid)
                pending.append(pid)
    return [table[pid] for pid in sorted(found) if not table[pid].is_dead]


class TetherError(OSError):
    """The helper process can't be started or can't be reached."""


class Tether:
    """The owner's side. Not for use by several threads at once.

    Start it with :meth:`start`, put :attr:`environment` into the environment of every process that
    must not outlive the owner, name each session after it was created with :meth:`hold`, and end with
    :meth:`close`. A helper that was itself killed is noticed by the next :meth:`hold`, :meth:`release` or
    :meth:`renew`, which start another one that holds the same sessions.
    """

    def __init__(self, *, inherited: str) -> None:
        self.id = os.urandom(8).hex()
        """This tether's own id: the last one in the marker."""
        self.environment: dict[str, str] = {MARKER: f"{inherited}:{self.id}" if inherited else self.id}
        """What every process of the owner must have in its environment.

        It also names the tethers that the owner itself hangs on, so that the end of an outer job
        ends the inner job that one of its workers launched.
        """
        self._owner = os.getpid()
        self._holds: dict[int, int] = {}
        self._is_closed = False
        self._helper, self._pipe = self._launch()
        helper = read_process(self._helper.pid)
        self.since = helper.started if helper is not None else 0
        """When this tether was started, in ticks since boot: no process it holds is older."""

    @classmethod
    def start(cls) -> "Tether":
        """Start the helper and return its owner's side.

        Raises:
            TetherError: The helper can't be started.
        """
        return cls(inherited=os.environ.get(MARKER, ""))

    @property
    def pid(self) -> int:
        """The helper's process id."""
        return self._helper.pid

    @property
    def holds(self) -> Mapping[int, int]:
        """The held sessions, each with the start time of its leader."""
        return dict(self._holds)

    def hold(self, sid: int) -> None:
        """End this session when the owner dies. Its leader must be a child not yet waited for.

        Raises:
            TetherError: The helper was gone and another one can't be started.
        """
        leader = read_process(sid)
        self._holds[sid] = leader.started if leader is not None else 0
        self._tell(f"hold {sid} {self._holds[sid]}\n")

    def release(self, sid: int) -> None:
        """Forget a session that is over. Releasing what isn't held is no error."""
        if self._holds.pop(sid, None) is not None:
            self._tell(f"release {sid}\n")

    def open_pidfd(self) -> int:
        """Return a pidfd of the helper, readable when it is time to :meth:`renew`. The caller closes it."""
        return os.pidfd_open(self._helper.pid)

    def renew(self) -> None:
        """Start another helper if this one was killed.

        Raises:
            TetherError: It was, and another one can't be started, or the tether is closed. Whatever is called
                next tries again.
        """
        if self._pipe >= 0 and self._helper.poll() is None:
            return
        self._discard_helper(0.0)
        self._replace_helper()

    def close(self) -> None:
        """Let go of everything and end the helper, in bounded time. Nothing is signalled.

        Closing twice is no error; in a forked copy of the owner it does nothing.
        """
        if self._is_closed or os.getpid() != self._owner:
            return
        self._is_closed = True
        # A helper that is gone, or so stuck that the pipe is full, is collected below all the same.
        with contextlib.suppress(OSError):
            os.write(self._pipe, b"close\n")
        self._discard_helper(CLOSE_SECONDS)

    def __enter__(self) -> "Tether":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self) -> "tuple[subprocess.Popen[bytes], int]":
        read_end, write_end = os.pipe()
        try:
            # A helper that is stopped must not stop its owner: a full pipe counts as a dead helper.
            os.set_blocking(write_end, False)
            command = [sys.executable, "-I", "-S", "-c", _HELPER, str(_ROOT), str(self._owner), self.id]
            helper = subprocess.Popen(
                command,
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(write_end)
            raise TetherError(
                f"cannot start the process that ends the workers if this one dies ({error}); "
                "check the limits on processes and open files"
            ) from error
        finally:
            os.close(read_end)
        return helper, write_end

    def _tell(self, line: str) -> None:
        try:
            os.write(self._pipe, line.encode())
        except OSError:
            self._discard_helper(0.0)
            self._replace_helper()

    def _replace_helper(self) -> None:
        """Start another helper, which holds all that is held."""
        if self._is_closed:
            raise TetherError("the tether is closed and can hold no session")
        self._helper, self._pipe = self._launch()
        everything = "".join(f"hold {sid} {started}\n" for sid, started in self._holds.items())
        try:
            os.write(self._pipe, everything.encode())
        except OSError as error:
            raise TetherError(
                f"the process that ends the workers if this one dies ended at once ({error})"
            ) from error

    def _discard_helper(self, timeout: float) -> None:
        """End the helper, which has so many seconds to do it by itself."""
        if timeout > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._helper.wait(timeout)
        # Before the pipe is closed: its end means "the owner died".
        self._helper.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._helper.wait(CLOSE_SECONDS)
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
