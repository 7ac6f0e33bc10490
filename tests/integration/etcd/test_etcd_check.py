"""The check before the start: every way in which an endpoint is not a usable etcd has its own sentence."""

from __future__ import annotations

import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.etcd import EtcdCluster, EtcdServer, enable_auth
from support.mute import MuteServer
from support.relay import Relay

from elastic.etcd import (
    AuthFailed,
    Client,
    EtcdError,
    MixedClusters,
    NoLeader,
    NotEtcd,
    PermissionDenied,
    Tls,
    TlsFailed,
    Unavailable,
    Unsupported,
)


def refusal(endpoints: list[str], *, timeout: float = 1.0, **options: object) -> EtcdError:
    """The error of a check; it must name the first endpoint, and be one line."""
    with Client(endpoints, **options) as client, pytest.raises(EtcdError) as caught:  # type: ignore[arg-type]
        client.check(timeout=timeout)
    assert "\n" not in str(caught.value)
    assert endpoints[0].rpartition("/")[2] in str(caught.value)
    return caught.value


@contextmanager
def service(reply: Callable[[socket.socket], object]) -> Iterator[str]:
    """A TCP service that does this with every connection, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        reply(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_good_etcd_passes(each_etcd: EtcdServer) -> None:
    with Client([each_etcd.endpoint]) as client:
        client.check()
        client.check(timeout=5, keys=b"any")


def test_an_etcd_on_ipv6_passes(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server(host="::1")
    with Client(["etcd://" + server.endpoint]) as client:
        client.check()
    # gRPC and the system take a scope id, too.
    with Client([f"[::1%lo]:{server.port}"]) as client:
        client.check()


def test_nothing_listens() -> None:
    error = refusal(["127.0.0.1:1"])
    assert isinstance(error, Unavailable)
    assert "cannot connect" in str(error)


def test_an_etcd_that_comes_up_in_time_passes(etcd: EtcdServer) -> None:
    with Relay((etcd.host, etcd.port)) as relay:
        relay.refuse()
        with Client([relay.endpoint]) as client, ThreadPoolExecutor(1) as pool:
            checking = pool.submit(client.check, timeout=20)
            time.sleep(0.7)  # it has found nothing once or twice
            assert not checking.done()
            relay.heal()
            checking.result(20)


def test_a_name_that_does_not_resolve() -> None:
    error = refusal(["no-such-host.invalid:2379"])
    assert isinstance(error, Unavailable)
    assert "does not resolve" in str(error)


class QuietWeb(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_a_web_server_is_told_at_once() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), QuietWeb)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        started = time.monotonic()
        error = refusal([f"127.0.0.1:{server.server_port}"], timeout=60)
        assert time.monotonic() - started < 20
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert isinstance(error, NotEtcd)
    assert "web server" in str(error)


def test_a_service_that_talks_nonsense() -> None:
    with service(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as endpoint:
        error = refusal([endpoint], timeout=60)
    assert isinstance(error, NotEtcd)


def test_a_service_that_says_nothing() -> None:
    with service(lambda connection: connection.recv(1 << 16) and connection.recv(1 << 16)) as endpoint:
        error = refusal([endpoint], timeout=2.5)
    assert isinstance(error, Unavailable)
    assert "does not answer" in str(error)


def test_a_grpc_server_that_is_not_etcd() -> None:
    with MuteServer() as mute:
        error = refusal([mute.endpoint], timeout=60)
    assert isinstance(error, Unsupported)
    assert "3.4" in str(error)


def test_an_etcd_without_the_v3_api() -> None:
    body = b'{"etcdserver":"2.3.8","etcdcluster":"2.3.0"}'

    def answer(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with service(answer) as endpoint:
        error = refusal([endpoint], timeout=60)
    assert isinstance(error, Unsupported)
    assert "2.3.8" in str(error)


def test_passwords_and_permissions(etcd_server: Callable[..., EtcdServer]) -> None:
    server = etcd_server()
    enable_auth(server)
    missing = refusal([server.endpoint], timeout=60)
    assert isinstance(missing, AuthFailed)
    assert "requires authentication" in str(missing)
    wrong = refusal([server.endpoint], user="bob", password="guess", timeout=60)
    assert isinstance(wrong, AuthFailed)
    assert "password" in str(wrong)
    assert "guess" not in str(wrong)
    with Client([server.endpoint], user="bob", password="secret") as client:
        client.check()
        client.check(keys=b"bob/x")
        with pytest.raises(PermissionDenied, match="grant"):
            client.check(keys=b"alice/x", timeout=60)


def test_a_user_where_none_is_needed_passes(client: Client, etcd: EtcdServer) -> None:
    with Client([etcd.endpoint], user="bob", password="secret") as named:
        named.check()


def test_no_quorum(etcd_cluster: EtcdCluster) -> None:
    for member in etcd_cluster.members[1:]:
        member.kill()
    error = refusal(etcd_cluster.endpoints[:1], timeout=6)
    assert isinstance(error, NoLeader)
    assert "majority" in str(error)


def test_one_good_endpoint_is_enough(etcd: EtcdServer) -> None:
    with Client(["127.0.0.1:1", etcd.endpoint, "no-such-host.invalid"]) as client:
        client.check()


def test_endpoints_of_two_clusters(etcd: EtcdServer, etcd_server: Callable[..., EtcdServer]) -> None:
    other = etcd_server()
    with Client([etcd.endpoint, other.endpoint]) as client, pytest.raises(MixedClusters) as caught:
        client.check()
    assert etcd.endpoint in str(caught.value)
    assert other.endpoint in str(caught.value)


# TLS


def openssl(*arguments: str | Path, directory: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ca, other (another CA), server (signed by ca, for 127.0.0.1) and client (by ca)."""
    home = tmp_path_factory.mktemp("tls")
    elliptic = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for ca in ("ca", "other"):
        names = ["-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN={ca}"]
        openssl("req", "-x509", "-days", "2", *elliptic, *names, directory=home)
    (home / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:etcd.test\n")
    for name in ("server", "client"):
        request = ["-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"]
        openssl("req", *elliptic, *request, directory=home)
        signed = ["-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", "names", "-days", "2"]
        ca_files = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
        openssl("x509", "-req", *signed, *ca_files, directory=home)
    return home


@pytest.fixture
def mutual(certificates: Path) -> Tls:
    """What a client needs at `tls_etcd`."""
    home = certificates
    return Tls(ca=home / "ca.crt", cert=home / "client.crt", key=home / "client.key")


@pytest.fixture
def tls_etcd(tmp_path: Path, certificates: Path, mutual: Tls) -> Iterator[EtcdServer]:
    files = [
        f"--cert-file={certificates / 'server.crt'}",
        f"--key-file={certificates / 'server.key'}",
        f"--trusted-ca-file={certificates / 'ca.crt'}",
        "--client-cert-auth",
    ]
    with EtcdServer(tmp_path, scheme="https", arguments=files) as server:
        yield server.start().wait_ready(tls=mutual)


def test_tls(tls_etcd: EtcdServer, mutual: Tls, certificates: Path, etcd: EtcdServer) -> None:
    with Client([tls_etcd.endpoint], tls=mutual) as client:
        client.check()
        client.put(b"a", b"1")
    named = Tls(ca=mutual.ca, cert=mutual.cert, key=mutual.key, server_name="etcd.test")
    with Client([tls_etcd.url], tls=named) as client:
        client.check()

    faults: list[tuple[str, Tls | None, str]] = [
        (tls_etcd.endpoint, None, "expects TLS"),
        ("https://" + etcd.endpoint, None, "does not speak TLS"),
        (tls_etcd.url, None, "the certificate of etcd"),
        (tls_etcd.url, Tls(ca=certificates / "other.crt"), "the certificate of etcd"),
        (tls_etcd.url, Tls(ca=mutual.ca, server_name="wrong.test"), "not accepted"),
        (tls_etcd.url, Tls(ca=mutual.ca), "this client's certificate"),
    ]
    for endpoint, tls, words in faults:
        error = refusal([endpoint], tls=tls, timeout=60)
        assert isinstance(error, TlsFailed)
        assert words in str(error)


def test_tls_files_that_cannot_be_right(tmp_path: Path, mutual: Tls) -> None:
    with pytest.raises(ValueError, match=r"cannot read the TLS ca file .*nothing: No such file"):
        Client(["https://a"], tls=Tls(ca=tmp_path / "nothing"))
    with pytest.raises(ValueError, match="cert but no client key"):
        Tls(cert=tmp_path)
    with pytest.raises(ValueError, match="write https"):
        Client(["http://a"], tls=mutual)
