"""Timeouts, secrets and stores as callers give them."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from elastic.store import TCPStore, as_store
from elastic.store.durations import as_timedelta, seconds
from elastic.store.handshake import Claim, Hello, Unproven, new_challenge, new_id, read_claim, secret_of


def test_a_timeout_is_a_timedelta_or_seconds() -> None:
    assert as_timedelta(timedelta(minutes=1)) == timedelta(minutes=1)
    assert seconds(1.5) == 1.5
    assert seconds(0) == 0
    assert 1e7 < seconds(timedelta.max) < threading.TIMEOUT_MAX


@pytest.mark.parametrize("value", ["1", None, True, [1]])
def test_other_things_are_no_timeout(value: Any) -> None:
    with pytest.raises(TypeError, match="neither a timedelta nor a number of seconds"):
        as_timedelta(value)


def test_a_secret_is_a_value_or_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3\n")
    assert secret_of("s3", None) == secret_of(b"s3", None) == secret_of(None, file) == b"s3"
    assert secret_of(None, None) == b""


@pytest.mark.parametrize(
    ("secret", "content", "reason"),
    [("", None, "the secret is empty"), (None, "\n", "is empty: write"), ("a", "b", "give one of them")],
)
def test_a_secret_that_is_none_is_refused(
    secret: str | None, content: str | None, reason: str, tmp_path: Path
) -> None:
    file = None if content is None else tmp_path / "secret"
    if file is not None and content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=reason):
        secret_of(secret, file)
    with pytest.raises(ValueError, match="cannot be read"):
        secret_of(None, tmp_path / "missing")


def test_a_proof_fits_its_challenge_only() -> None:
    hello, other = (Hello(new_id(), new_challenge(), 100) for _ in range(2))
    body = Claim(new_id(), new_challenge()).body(b"s", hello)
    assert read_claim(body, b"s", hello).body(b"s", hello) == body
    for secret, asked in ((b"s", other), (b"t", hello), (b"", hello)):
        with pytest.raises(Unproven, match="another secret"):
            read_claim(body, secret, asked)


@pytest.mark.parametrize("thing", [3, None, {}, "store", object, TCPStore])
def test_what_is_no_store_is_refused_in_one_sentence(thing: object) -> None:
    with pytest.raises(TypeError, match=r"is no store: expected one of elastic\.store, torch"):
        as_store(thing)


@pytest.mark.parametrize(("port", "options"), [(0, {}), (70000, {}), (5, {"listen_on": "::1"})])
def test_a_client_needs_a_port_and_listens_nowhere(port: int, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"port \d+ is none|listen_on"):
        TCPStore("127.0.0.1", port, **options)


def test_a_heartbeat_takes_time() -> None:
    with pytest.raises(ValueError, match="heartbeat is 0"):
        TCPStore("127.0.0.1", 5, heartbeat=0)


def test_the_package_loads_no_client_and_no_framework() -> None:
    program = "import sys, elastic.store; print(*{'grpc', 'torch', 'tensorplay'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
