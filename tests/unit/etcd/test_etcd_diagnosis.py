"""What the first bytes of an answer say of a service, and which sentence a failed check ends with."""

from __future__ import annotations

import pytest

from elastic.etcd import EtcdError, NoLeader, NotEtcd, TlsFailed, Unavailable, Unsupported
from elastic.etcd.diagnosis import explain
from elastic.etcd.probe import Finding, Found, read_answer
from elastic.utils.endpoints import Endpoint

A, B = Endpoint("etcd", "a", 1), Endpoint("etcd", "b", 2)
AWAY = Unavailable("etcd at a:1: failed to connect")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"", Found.OTHER),
        (b"SSH-2.0-OpenSSH_9\r\n", Found.OTHER),
        (b"\x15\x03\x01\x00\x02\x02\x46", Found.TLS),
        (b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", Found.TLS),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<html>", Found.WEB),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", Found.WEB),
        (b'HTTP/1.1 200 OK\r\n\r\n{"version": "1"}', Found.WEB),
        (b'HTTP/1.1 200 OK\r\n\r\n{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}', Found.ETCD),
        (b'HTTP/1.1 200 OK\r\n\r\n{"etcdserver":"2.3.8","etcdcluster":"2.3.0"}', Found.OLD_ETCD),
    ],
)
def test_reading_an_answer(answer: bytes, found: Found) -> None:
    assert read_answer(answer).found is found


@pytest.mark.parametrize(
    ("found", "kind", "final"),
    [
        (Found.NO_NAME, Unavailable, False),
        (Found.NOTHING, Unavailable, False),
        (Found.SILENCE, Unavailable, False),
        (Found.ETCD, NoLeader, False),
        (Found.WEB, NotEtcd, True),
        (Found.OTHER, NotEtcd, True),
        (Found.OLD_ETCD, Unsupported, True),
        (Found.TLS, TlsFailed, True),
        (Found.PLAIN, TlsFailed, True),
        (Found.CERTIFICATE, TlsFailed, True),
        (Found.CLIENT_CERTIFICATE, TlsFailed, True),
    ],
)
def test_every_finding_has_its_error_and_names_the_endpoint(
    found: Found, kind: type[EtcdError], final: bool
) -> None:
    error, useless = explain([(A, Finding(found, "why"))], AWAY)
    assert type(error) is kind
    assert useless is final
    assert "a:1" in str(error)


def test_waiting_is_useless_only_if_every_endpoint_is_hopeless() -> None:
    web, nothing = (A, Finding(Found.WEB)), (B, Finding(Found.NOTHING))
    error, useless = explain([nothing, web], AWAY)
    assert isinstance(error, NotEtcd)
    assert "a:1" in str(error)
    assert not useless
    assert explain([web, (B, Finding(Found.OTHER))], AWAY)[1]


def test_a_grpc_server_that_is_not_etcd_is_told_as_grpc_told_it() -> None:
    refused = Unsupported("etcd at a:1: unknown service")
    assert explain([(A, Finding(Found.SILENCE))], refused) == (refused, True)
