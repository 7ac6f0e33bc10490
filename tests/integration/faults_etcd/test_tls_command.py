"""TLS from the command line: the right files work end to end, every wrong one is told in one sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.certificates import Authority, Signed
from support.command import Command
from support.etcd import EtcdServer

from elastic.etcd import Tls


@dataclass(frozen=True, slots=True)
class Files:
    """Everything that a user may give, rightly or wrongly."""

    ca: Authority
    client: Signed
    expired_client: Signed
    other_ca: Authority
    others_client: Signed
    garbage: Path
    missing: Path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def files(home: Path) -> Files:
    ca, other_ca = Authority(home, "ca"), Authority(home, "other-ca")
    garbage = home / "garbage.pem"
    garbage.write_text("no certificate\n")
    return Files(
        ca=ca,
        client=ca.sign("client"),
        expired_client=ca.sign("expired-client", days=-1),
        other_ca=other_ca,
        others_client=other_ca.sign("others-client"),
        garbage=garbage,
        missing=home / "nowhere.pem",
    )


def _server(directory: Path, signed: Signed, *arguments: str) -> EtcdServer:
    directory.mkdir()
    files = [f"--cert-file={signed.cert}", f"--key-file={signed.key}"]
    return EtcdServer(directory, scheme="https", arguments=[*files, *arguments]).start()


@pytest.fixture(scope="module")
def plain_tls(home: Path, files: Files) -> Iterator[EtcdServer]:
    """A server that shows a certificate and asks for none."""
    with _server(home / "tls-etcd", files.ca.sign("server")) as server:
        yield server.wait_ready(tls=Tls(ca=files.ca.cert))


@pytest.fixture(scope="module")
def mutual(home: Path, files: Files) -> Iterator[EtcdServer]:
    """A server that also asks for the client's certificate."""
    asks = (f"--trusted-ca-file={files.ca.cert}", "--client-cert-auth")
    with _server(home / "mutual-etcd", files.ca.sign("mutual-server"), *asks) as server:
        yield server.wait_ready(tls=Tls(files.ca.cert, files.client.cert, files.client.key))


@pytest.fixture(scope="module")
def expired(home: Path, files: Files) -> Iterator[EtcdServer]:
    """A server whose certificate is past its time. It is never ready for anybody who looks."""
    with _server(home / "expired-etcd", files.ca.sign("expired-server", days=-1)) as server:
        yield server


@pytest.fixture(scope="module")
def misnamed(home: Path, files: Files) -> Iterator[EtcdServer]:
    """A server whose certificate is for another name."""
    with _server(home / "misnamed-etcd", files.ca.sign("misnamed", names="DNS:etcd.test")) as server:
        yield server.wait_ready(tls=Tls(files.ca.cert, server_name="etcd.test"))


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    with Command(tmp_path) as starter:
        yield starter


def _arguments(command: Command, endpoint: str, conf: str, *, nodes: int = 1) -> list[str]:
    settings = f"connect_timeout=5,ttl=60,last_call_timeout=1{',' if conf else ''}{conf}"
    return [
        f"--nnodes={nodes}",
        "--rdzv-backend=etcd",
        f"--rdzv-endpoint={endpoint}",
        "--rdzv-id=tls",
        f"--rdzv-conf={settings}",
        command.script("import os; print('rank', os.environ['RANK'], flush=True)"),
    ]


def _client(signed: Signed) -> str:
    return f"ssl_cert={signed.cert},ssl_cert_key={signed.key}"


def test_the_right_files_work_end_to_end(
    command: Command, files: Files, plain_tls: EtcdServer, mutual: EtcdServer
) -> None:
    """Two agents each: they share the store and the watches as well, not only the first call."""
    ca = f"ca_cert={files.ca.cert}"
    both = f"{ca},{_client(files.client)}"
    for endpoint, conf in (
        (plain_tls.url, ca),  # https:// in the endpoint
        (plain_tls.endpoint, f"protocol=https,{ca}"),
        (mutual.endpoint, both),  # the files alone say that TLS is wanted
    ):
        agents = [command.start(*_arguments(command, endpoint, conf, nodes=2)) for _ in range(2)]
        outputs = [agent.communicate(timeout=60) for agent in agents]
        assert [agent.returncode for agent in agents] == [0, 0], outputs
        assert sorted(out.strip() for out, _ in outputs) == ["rank 0", "rank 1"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a user gives, and what must be in the sentence that refuses it."""

    endpoint: str
    conf: str
    code: int
    words: tuple[str, ...]


def _refusals(
    files: Files, plain_tls: EtcdServer, mutual: EtcdServer, expired: EtcdServer, misnamed: EtcdServer
) -> list[Refusal]:
    ca = f"ca_cert={files.ca.cert}"
    missing, garbage = str(files.missing), str(files.garbage)
    tls, mtls = plain_tls.url, mutual.url
    bad_server = (f"certificate of etcd at {plain_tls.endpoint}", "CA")
    bad_client = (mutual.endpoint, "this client's certificate")
    swapped = f"ssl_cert={files.client.cert},ssl_cert_key={files.others_client.key}"
    return [
        # The server's side.
        Refusal(tls, f"ca_cert={files.other_ca.cert}", 69, bad_server),
        Refusal(tls, "", 69, bad_server),  # the system's authorities do not know it
        Refusal(plain_tls.endpoint, "", 69, (plain_tls.endpoint, "expects TLS", "https://")),
        Refusal(expired.url, ca, 69, (expired.endpoint, "expired")),
        Refusal(misnamed.url, ca, 69, (misnamed.endpoint, "not accepted")),
        # The client's side.
        Refusal(mtls, ca, 69, bad_client),
        Refusal(mtls, f"{ca},{_client(files.others_client)}", 69, bad_client),
        Refusal(mtls, f"{ca},{_client(files.expired_client)}", 69, (*bad_client, "expired")),
        # The files.
        Refusal(tls, f"ca_cert={missing}", 2, (missing, "No such file")),
        Refusal(tls, f"ca_cert={garbage}", 2, (garbage, "certificate")),
        Refusal(mtls, f"{ca},ssl_cert={missing},ssl_cert_key={files.client.key}", 2, (missing, "No such")),
        Refusal(mtls, f"{ca},ssl_cert={files.client.cert},ssl_cert_key={garbage}", 2, (garbage, "key")),
        Refusal(mtls, f"{ca},{swapped}", 2, (str(files.others_client.key), "does not belong")),
        Refusal(mtls, f"{ca},ssl_cert={files.client.cert}", 2, ("cert", "no client key")),
        Refusal("http://" + plain_tls.endpoint, ca, 2, ("http", "write https")),
    ]


def test_every_wrong_file_is_told_in_one_sentence(
    command: Command,
    files: Files,
    plain_tls: EtcdServer,
    mutual: EtcdServer,
    expired: EtcdServer,
    misnamed: EtcdServer,
) -> None:
    started = threading.Lock()

    def run(refusal: Refusal) -> str:
        with started:
            process = command.start(*_arguments(command, refusal.endpoint, refusal.conf), LOGLEVEL="WARNING")
        out, err = process.communicate(timeout=60)
        lines = err.splitlines()
        missing = [word for word in refusal.words if not lines or word not in lines[-1]]
        right = process.returncode == refusal.code and len(lines) == 1 and not out and not missing
        return "" if right else f"{refusal}: exit {process.returncode}, missing {missing}\n{out}{err}"

    cases = _refusals(files, plain_tls, mutual, expired, misnamed)
    with ThreadPoolExecutor(3) as pool:
        complaints = [complaint for complaint in pool.map(run, cases) if complaint]
    assert not complaints, "\n\n".join(complaints)
