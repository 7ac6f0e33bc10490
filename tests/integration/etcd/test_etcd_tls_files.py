"""TLS files that cannot be used are told by name, before anything is connected."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.certificates import Authority, Signed

from elastic.etcd import Tls


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


def refusal(tls: Tls) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        tls.context()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_files_that_fit_are_taken(authority: Authority) -> None:
    signed = authority.sign("client")
    tls = Tls(ca=authority.cert, cert=signed.cert, key=signed.key)
    tls.context()
    assert tls.outdated() == ""


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_passphrase(
    authority: Authority, tmp_path: Path
) -> None:
    signed = authority.sign("client")
    locked = tmp_path / "locked.key"
    files = ["-in", str(signed.key), "-out", str(locked)]
    command = ["openssl", "pkey", "-aes128", "-passout", "pass:secret", *files]
    subprocess.run(command, check=True, capture_output=True)
    text = refusal(Tls(cert=signed.cert, key=locked))
    assert str(locked) in text
    assert "encrypted" in text


def test_files_of_the_wrong_kind_are_named(authority: Authority, tmp_path: Path) -> None:
    signed, other = authority.sign("client"), authority.sign("other")
    empty = tmp_path / "empty.pem"
    empty.touch()
    assert f"ca file {empty} holds no certificate" in refusal(Tls(ca=empty))
    assert f"ca file {signed.key} holds no certificate" in refusal(Tls(ca=signed.key))
    assert f"cert file {empty} holds no certificate" in refusal(Tls(cert=empty, key=signed.key))
    assert f"key file {signed.cert} holds no private key" in refusal(Tls(cert=signed.cert, key=signed.cert))
    assert f"{other.key} does not belong to" in refusal(Tls(cert=signed.cert, key=other.key))


@pytest.mark.parametrize("days", [2, -1])
def test_a_certificate_past_its_time_is_known_without_a_server(authority: Authority, days: int) -> None:
    signed: Signed = authority.sign("client", days=days)
    found = Tls(cert=signed.cert, key=signed.key).outdated()
    assert ("expired" in found) == (days < 0)
