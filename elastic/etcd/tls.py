"""The TLS side of a connection: which files, which name, and the SSL context made of them."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# OpenSSL's codes for "not yet valid" and "has expired".
_DATES = (9, 10)

# Where Debian and Red Hat keep it, if Python does not know.
_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM form. `ca` verifies the servers (None: the system's authorities); `cert` and `key`
    identify this client, both or neither; `server_name` is the name expected in the servers' certificates
    where it is not the endpoint's host. The files are read once, when a client is made.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.key is None else ("key", "cert")
            raise ValueError(f"TLS has a client {given} but no client {missing}: give both or neither")

    def context(self, *, protocols: Sequence[str] = ()) -> ssl.SSLContext:
        """Reads the files; `protocols` are to be agreed on with the server. X.509's strict rules do not
        apply, for many an authority of one's own breaks them. Raises ValueError, naming the file, if one
        cannot be read or used.
        """
        for what, path in (("ca", self.ca), ("key", self.key), ("cert", self.cert)):
            _require_readable(what, path)
        try:
            context = ssl.create_default_context(cafile=self.ca or _system_authorities())
        except ssl.SSLError as error:
            raise ValueError(f"the TLS ca file {self.ca} holds no certificate in PEM form") from error
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.cert is not None and self.key is not None:
            _load_pair(context, self.cert, self.key)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def outdated(self) -> str:
        """What is wrong now with the dates of the client certificate; "" if nothing is, or there is none.

        A server that refuses it does not say so. Python reads no certificate's dates, but verifies them: of a
        peer that shows the certificate, in a handshake that goes through memory only.
        """
        if self.cert is None or self.key is None:
            return ""
        showing, verifying = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_pair(showing, self.cert, self.key)
        verifying.check_hostname = False
        verifying.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        verifying.load_verify_locations(self.cert)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        sides = (
            verifying.wrap_bio(back, there),
            showing.wrap_bio(there, back, server_side=True),
        )
        try:
            # To and fro twice is more than a handshake needs until the certificate has been verified.
            for side in sides * 2:
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message if error.verify_code in _DATES else ""
        return ""


def _system_authorities() -> Path | None:
    """The file with the system's authorities, if there is one."""
    given = ssl.get_default_verify_paths().cafile
    places = (*([given] if given else []), *_AUTHORITIES)
    return next((Path(place) for place in places if Path(place).exists()), None)


def _load_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    def locked() -> str:
        raise ValueError(f"the TLS key file {key} is encrypted: give one without a passphrase")

    try:
        context.load_cert_chain(cert, key, password=locked)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            fault = f"the TLS key file {key} does not belong to the certificate {cert}"
        elif _holds_certificate(cert):
            fault = f"the TLS key file {key} holds no private key in PEM form"
        else:
            fault = f"the TLS cert file {cert} holds no certificate in PEM form"
        raise ValueError(fault) from error


def _holds_certificate(cert: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except ssl.SSLError:
        return False
    return True


def _require_readable(what: str, path: Path | None) -> None:
    if path is None:
        return
    try:
        path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"cannot read the TLS {what} file {path}: {reason}") from error
