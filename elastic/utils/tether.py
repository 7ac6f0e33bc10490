"""A tether: no process of ours outlives its owner, however the owner ends.

The owner (an agent) starts one small helper process and keeps the write end of a pipe to it. The
helper learns of the owner's end from that pipe and from a pidfd, so it also learns of ``kill -9``,
the OOM killer and a crash of the interpreter. It then asks the held sessions to end, kills what is
left after a short grace, and sweeps until no process of the owner is left.

Who is "of the owner": members of a held session, their descendants, and every process that was born
with the owner's marker in its environment (:attr:`Tether.environment`), which a ``setsid`` or a
double fork doesn't shed. Nothing else is ever signalled: a process is named by its id *and* its
start time, and a signal goes through a pidfd that was checked against both.

This file is also the helper's program. It runs by ``exec`` in an interpreter without site-packages,
so it may import the standard library and nothing else; the reading of ``/proc`` that it needs lives
here too, for others to use. Linux 5.3 or newer.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

MARKER = "ELASTIC_TETHER"
"""Environment variable that marks a process: the ids of the tethers it hangs on, joined by ``:``."""

GRACE_SECONDS = 0.5
"""From the owner's death to the kill. The promise is that nothing is left two seconds after it."""

SWEEP_SECONDS = 15.0
"""How long the helper goes on killing before it gives up on what can't be killed (kernel waits)."""

CLOSE_SECONDS = 2.0
"""How long :meth:`Tether.close` waits for the helper to end by itself."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_EMPTY_SCANS = 3  # a child between fork and exec doesn't show its marker yet: look again
_SCAN_SECONDS = 0.05
_MOST_PIDFDS = 256  # well below the usual limit of open files


@dataclass(frozen=True, slots=True)
class Process:
    """One process as ``/proc`` shows it. ``started`` is in clock ticks since boot."""

    pid: int
    state: str
    parent: int
    session: int
    started: int

    @property
    def is_dead(self) -> bool:
        """Whether it has ended and only waits to be collected."""
        return self.state in "ZXx"


def read_process(pid: int) -> Process | None:
    """Return what ``/proc`` says about a process, or None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses: only the last one closes it.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
    )


def list_processes() -> dict[int, Process]:
    """Return every process that ``/proc`` shows, by id."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return {process.pid: process for pid in pids if (process := read_process(pid)) is not None}


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


def open_pidfd(process: Process) -> int | None:
    """Return a pidfd of exactly this process (the caller closes it), or None if it has ended."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    now = read_process(process.pid)
    if now is None or now.started != process.started or now.is_dead:
        os.close(pidfd)
        return None
    return pidfd


def send_signal(process: Process, signum: int) -> bool:
    """Send a signal to exactly this process; False if it has ended or isn't ours to signal."""
    pidfd = open_pidfd(process)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True


class TetherError(RuntimeError):
    """The helper process can't be started or can't be reached."""


class Tether:
    """The owner's side. Not for use by several threads at once.

    Start it with :meth:`start`, put :attr:`environment` into the environment of every process that
    must not outlive the owner, name each session after it was created with :meth:`hold`, and end with
    :meth:`close`. A helper that was itself killed is noticed by the next :meth:`hold` or
    :meth:`release`, which start another one that holds the same sessions.
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

    def close(self) -> None:
        """Let go of everything and end the helper, in bounded time. Nothing is signalled.

        Closing twice is no error; in a forked copy of the owner it does nothing.
        """
        if self._pipe < 0 or os.getpid() != self._owner:
            return
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
            command = [sys.executable, "-I", "-S", __file__, str(self._owner), self.id]
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
        if self._pipe < 0:
            raise TetherError("the tether is closed and can hold no session")
        try:
            os.write(self._pipe, line.encode())
        except OSError:
            self._discard_helper(0.0)
            self._helper, self._pipe = self._launch()
            everything = "".join(f"hold {sid} {started}\n" for sid, started in self._holds.items())
            try:
                os.write(self._pipe, everything.encode())
            except OSError as error:
                raise TetherError(
                    f"the process that ends the workers if this one dies ended at once ({error})"
                ) from error

    def _discard_helper(self, timeout: float) -> None:
        os.close(self._pipe)
        self._pipe = -1
        if timeout > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._helper.wait(timeout)
        # Killed even where the pipe's end alone would do: the end of a pipe means "the owner died".
        self._helper.kill()
        self._helper.wait()


def _wait_ended(processes: Iterable[Process], seconds: float) -> None:
    """Wait until these processes have ended, at most so long."""
    poll = select.poll()
    pidfds: set[int] = set()
    deadline = time.monotonic() + seconds
    for process in processes:
        if len(pidfds) < _MOST_PIDFDS and (pidfd := open_pidfd(process)) is not None:
            poll.register(pidfd, select.POLLIN)
            pidfds.add(pidfd)
    while pidfds and (left := deadline - time.monotonic()) > 0:
        for pidfd, _ in poll.poll(left * 1000):
            poll.unregister(pidfd)
            pidfds.discard(pidfd)
            os.close(pidfd)
    for pidfd in pidfds:
        os.close(pidfd)


def _end_all(find: Callable[[], list[Process]]) -> None:
    """End every process that ``find`` returns: ask, wait a little, kill until none is left."""
    asked = find()
    for process in asked:
        send_signal(process, signal.SIGTERM)
        send_signal(process, signal.SIGCONT)  # a stopped process can't answer
    _wait_ended(asked, GRACE_SECONDS)
    deadline = time.monotonic() + SWEEP_SECONDS
    empty = 0
    while empty < _EMPTY_SCANS and time.monotonic() < deadline:
        members = find()
        empty = 0 if members else empty + 1
        for process in members:
            send_signal(process, signal.SIGKILL)
        if members:
            _wait_ended(members, _SCAN_SECONDS)
        else:
            time.sleep(_SCAN_SECONDS)  # nothing tells of the birth of somebody else's child


def _serve(owner: int, read_end: int) -> dict[int, int] | None:
    """Follow the owner's words. Return what it held when it died, or None if it said goodbye."""
    holds: dict[int, int] = {}
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    os.set_blocking(read_end, False)
    pidfd = None
    # The pidfd tells of the end even while a forked copy of the owner keeps the pipe open.
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(owner)
        poll.register(pidfd, select.POLLIN)
    is_alive = os.getppid() == owner
    rest = b""
    while True:
        if is_alive:
            is_alive = all(fd != pidfd for fd, _ in poll.poll())
        try:
            data = os.read(read_end, 65536)
        except BlockingIOError:
            if not is_alive:
                return holds
            continue
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"close":
                return None
            if word == b"hold":
                holds[int(numbers[0])] = int(numbers[1])
            elif word == b"release":
                holds.pop(int(numbers[0]), None)
        if not data:
            return holds


def main(arguments: list[str]) -> int:
    """Be the helper. ``arguments``: the owner's process id and the tether's id; stdin: the pipe."""
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    owner, tether_id = int(arguments[0]), arguments[1]
    holds = _serve(owner, sys.stdin.fileno())
    if holds is not None:
        _end_all(lambda: find_members(holds, tether_id, excluding=[owner]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
