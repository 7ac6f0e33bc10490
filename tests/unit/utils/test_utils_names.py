"""The documented helpers: a variable that must be there, a socket, the macros of worker arguments."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import elastic.utils
from elastic.utils import get_env_variable_or_raise, get_socket_with_port, macros

WORKER = {
    "TORCHELASTIC_RUN_ID": "job-7",
    "ROLE_NAME": "actor",
    "ROLE_RANK": "3",
    "ROLE_WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
}


def test_the_documented_names_are_there() -> None:
    assert elastic.utils.__all__ == ["get_env_variable_or_raise", "get_socket_with_port", "macros"]


def test_a_variable_that_is_set_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_TEST", " a b ")
    assert get_env_variable_or_raise("ELASTIC_TEST") == " a b "


def test_a_variable_that_is_missing_or_empty_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTIC_TEST", raising=False)
    with pytest.raises(ValueError, match=r"ELASTIC_TEST is not set, .*: set it, or start this program with"):
        get_env_variable_or_raise("ELASTIC_TEST")
    monkeypatch.setenv("ELASTIC_TEST", "")
    with pytest.raises(ValueError, match=r"ELASTIC_TEST is empty, .*: set it"):
        get_env_variable_or_raise("ELASTIC_TEST")


def test_the_socket_takes_connections_on_loopback_and_keeps_its_port() -> None:
    with get_socket_with_port() as listening, get_socket_with_port() as other:
        host, port = listening.getsockname()[:2]
        assert port != other.getsockname()[1]
        with socket.create_connection((host, port), timeout=10) as client:
            accepted, peer = listening.accept()
            accepted.close()
            assert peer == client.getsockname()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Families in which this machine has no loopback interface."""
    refused: list[int] = []
    create = socket.create_server

    def create_server(address: tuple[str, int], **options: Any) -> socket.socket:
        if options["family"] in refused:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", create_server)
    return refused


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this system has no IPv6")
def test_the_socket_is_of_the_family_that_works(taken: list[int]) -> None:
    taken.append(socket.AF_INET)
    with get_socket_with_port() as listening:
        assert listening.family == socket.AF_INET6


def test_without_any_loopback_there_is_one_error(taken: list[int]) -> None:
    taken += [socket.AF_INET, socket.AF_INET6]
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.1: .*; ::1: .*: bring that interface up"):
        get_socket_with_port()


def test_each_macro_stands_for_its_value() -> None:
    names = ("record_id", "role_name", "role_rank", "role_world_size", "local_rank", "local_world_size")
    assert macros.to_map(WORKER) == dict(zip(names, WORKER.values(), strict=True))
    texts = [getattr(macros, name) for name in names]
    assert texts == [f"${{{name}}}" for name in names]
    assert macros.substitute(texts, environ=WORKER) == list(WORKER.values())


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--out=${local_rank}/${role_rank}", "--out=1/3"),
        (
            "$$ $local_rank ${rank} ${ local_rank} ${local_rank",
            "$$ $local_rank ${rank} ${ local_rank} ${local_rank",
        ),
        ("${${local_rank}}", "${1}"),
        (b"${local_rank}", b"${local_rank}"),
        (7, 7),
        (None, None),
    ],
)
def test_all_else_stays_as_it_is(argument: object, expected: object) -> None:
    assert macros.substitute([argument], environ=WORKER) == [expected]


@pytest.mark.parametrize("environ", [{}, {"LOCAL_RANK": "0"}])
def test_a_macro_without_a_value_stays(environ: Mapping[str, str]) -> None:
    assert macros.substitute(["${role_name}"], environ=environ) == ["${role_name}"]


def test_a_value_is_not_looked_into() -> None:
    assert macros.substitute(["${role_name}"], environ={"ROLE_NAME": r"\1${local_rank}"}) == [
        r"\1${local_rank}"
    ]


def test_by_default_the_values_are_this_processs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)
    assert macros.substitute(["${role_name} ${local_rank}"]) == ["actor 1"]


def test_with_a_local_rank_alone_only_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is a launcher then, whose environment says nothing about its worker."""
    monkeypatch.setenv("ROLE_NAME", "the launcher's")
    assert macros.substitute(["${role_name} ${local_rank}"], "5") == ["${role_name} 5"]
    assert macros.substitute(["${role_name} ${local_rank}"], 5, environ=WORKER) == ["actor 5"]
