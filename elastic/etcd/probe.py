"""What listens at an endpoint, found out with a plain socket, for the error message of a failed check.

To the client a web server, a silent port and a closed one are much the same. This looks once, within a
bound, and says which it is. It is used only after a call has failed, and decides nothing about the data.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from dataclasses import dataclass
from enum import Enum

from elastic.etcd.tls import Tls
from elastic.utils.endpoints import Endpoint

_REQUEST = b"GET /version HTTP/1.0\r\nHost: elastic\r\nConnection: close\r\n\r\n"
_ENOUGH = 4096


class Found(Enum):
    """What may listen at an endpoint."""

    NO_NAME = "the name does not resolve"
    NOTHING = "nothing listens"
    SILENCE = "a service that says nothing"
    ETCD = "an etcd"
    OLD_ETCD = "an etcd without the v3 API"
    WEB = "a web server"
    OTHER = "another service"
    PLAIN = "a service without TLS"
    TLS = "a service with TLS"
    CERTIFICATE = "a service whose certificate is not accepted"
    CLIENT_CERTIFICATE = "a service that does not accept our certificate"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and the words of the system or the service about it."""

    found: Found
    detail: str = ""


def look(endpoint: Endpoint, *, tls: Tls | None, timeout: float) -> Finding:
    """Connects once and asks for etcd's version, each step within `timeout` seconds."""
    secure = tls is not None or endpoint.secure
    try:
        connection = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout)
    except socket.gaierror as error:
        return Finding(Found.NO_NAME, error.strerror or str(error))
    except OSError as error:
        return Finding(Found.NOTHING, error.strerror or str(error))
    with connection:
        if secure:
            return _look_secure(connection, endpoint, tls=tls or Tls(), timeout=timeout)
        finding = _look_plain(connection, timeout=timeout)
    # Some TLS servers hang up on plain words without one of their own.
    if finding.found is Found.OTHER and _speaks_tls(endpoint, timeout=timeout):
        return Finding(Found.TLS)
    return finding


def _look_plain(connection: socket.socket, *, timeout: float) -> Finding:
    try:
        answer = _ask(connection, timeout=timeout)
    except TimeoutError:
        return Finding(Found.SILENCE)
    except OSError as error:
        return Finding(Found.OTHER, error.strerror or str(error))
    return read_answer(answer)


def _speaks_tls(endpoint: Endpoint, *, timeout: float) -> bool:
    """Whether a TLS handshake gets an answer, whatever certificates say: nothing is sent over it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((endpoint.host, endpoint.port), timeout=timeout) as connection,
            context.wrap_socket(connection),
        ):
            return True
    except OSError:
        return False


def _look_secure(connection: socket.socket, endpoint: Endpoint, *, tls: Tls, timeout: float) -> Finding:
    context = tls.context()
    try:
        wrapped = context.wrap_socket(connection, server_hostname=tls.server_name or endpoint.host)
    except ssl.SSLCertVerificationError as error:
        return Finding(Found.CERTIFICATE, error.verify_message)
    except TimeoutError:
        return Finding(Found.SILENCE)
    except OSError as error:
        reason = _words(error)
        if "alert" in reason or "certificate" in reason:
            return Finding(Found.CLIENT_CERTIFICATE, tls.outdated() or reason)
        return Finding(Found.PLAIN, reason)
    with wrapped:
        try:
            return read_answer(_ask(wrapped, timeout=timeout))
        except TimeoutError:
            return Finding(Found.SILENCE)
        except OSError as error:
            # By TLS 1.3 a server looks at the client's certificate when the client is through. Its last words
            # may be lost with the connection.
            return Finding(Found.CLIENT_CERTIFICATE, tls.outdated() or _words(error))


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error)


def _ask(connection: socket.socket, *, timeout: float) -> bytes:
    """What the service says until it hangs up, has said enough, or time is up; TimeoutError if nothing."""
    deadline = time.monotonic() + timeout
    connection.sendall(_REQUEST)
    answer = b""
    while len(answer) < _ENOUGH:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            more = connection.recv(_ENOUGH)
        except TimeoutError:
            if answer:
                break
            raise
        if not more:
            break
        answer += more
    return answer


def read_answer(answer: bytes) -> Finding:
    """What the first bytes of an answer to an HTTP request say of the service. Pure."""
    if not answer:
        return Finding(Found.OTHER, "it hung up")
    # A TLS alert record, or the words of Go's servers.
    if answer[:2] in (b"\x15\x03", b"\x16\x03") or b"HTTP request to an HTTPS server" in answer:
        return Finding(Found.TLS)
    if not answer.startswith(b"HTTP/"):
        return Finding(Found.OTHER, f"it answered {answer[:24]!r}")
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    version = document.get("etcdserver") if isinstance(document, dict) else None
    if not isinstance(version, str):
        return Finding(Found.WEB, head.split(b"\r\n", 1)[0].decode("latin-1"))
    return Finding(Found.OLD_ETCD if version.startswith(("0.", "2.")) else Found.ETCD, version)
