"""Certificates for tests: authorities, and what they sign, valid or past their time."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_ELLIPTIC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        self._home = directory / name
        self._home.mkdir()
        self.cert = self._home / f"{name}.crt"
        self._key = self._home / f"{name}.key"
        self._openssl(
            "req", "-x509", "-days", "2", *_ELLIPTIC, "-subj", f"/CN={name}", *self._out(self.cert, self._key)
        )

    def sign(self, name: str, *, names: str = "IP:127.0.0.1", days: int = 2) -> Signed:
        """A certificate for those names, for servers and clients alike; negative `days`: expired."""
        signed = Signed(self._home / f"{name}.crt", self._home / f"{name}.key")
        request = self._home / f"{name}.csr"
        extensions = self._home / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        self._openssl("req", *_ELLIPTIC, "-subj", f"/CN={name}", *self._out(request, signed.key))
        self._openssl(
            *("x509", "-req", "-in", str(request), "-out", str(signed.cert), "-extfile", str(extensions)),
            *("-days", str(days), "-CA", str(self.cert), "-CAkey", str(self._key), "-CAcreateserial"),
        )
        return signed

    def _out(self, cert: Path, key: Path) -> tuple[str, ...]:
        return ("-keyout", str(key), "-out", str(cert))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._home, check=True, capture_output=True)
