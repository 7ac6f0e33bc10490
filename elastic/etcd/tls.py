"""The TLS side of a connection: which files, which name, and the gRPC credentials made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc


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

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files. Raises ValueError, naming the file, if one cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_read("ca", self.ca),
            private_key=_read("key", self.key),
            certificate_chain=_read("cert", self.cert),
        )


def _read(what: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"cannot read the TLS {what} file {path}: {reason}") from error
