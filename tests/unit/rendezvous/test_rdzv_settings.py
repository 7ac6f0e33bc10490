"""The settings of `--rdzv-conf`: each key has its effect, and what makes no sense is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from elastic.etcd import Client
from elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousParameters,
    RendezvousSettings,
    RendezvousTimeout,
    create_handler,
)
from elastic.rendezvous.backends.etcd import open_run
from elastic.rendezvous.settings import BELONGS, KEYS, setting

NOBODY = "127.0.0.1:9"


def parameters(run_id: str = "job", low: int = 1, high: int = 2, /, **conf: Any) -> RendezvousParameters:
    return RendezvousParameters("etcd", NOBODY, run_id, low, high, **conf)


def settings(**conf: Any) -> RendezvousSettings:
    return RendezvousSettings.from_params(parameters(**conf))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


SECONDS: dict[str, Callable[[RendezvousSettings], timedelta | None]] = {
    "join_timeout": lambda s: s.timeout.join,
    "timeout": lambda s: s.timeout.join,
    "last_call_timeout": lambda s: s.timeout.last_call,
    "close_timeout": lambda s: s.timeout.close,
    "heartbeat_timeout": lambda s: s.timeout.heartbeat,
    "ttl": lambda s: s.ttl,
    "regroup_timeout": lambda s: s.regroup_timeout,
    "rejoin_grace": lambda s: s.rejoin_grace,
    "settle_timeout": lambda s: s.settle_timeout,
    "connect_timeout": lambda s: s.connect_timeout,
    "read_timeout": lambda s: s.read_timeout,
    "failsafe_timeout": lambda s: s.failsafe_timeout,
    "progress_interval": lambda s: s.progress_interval,
    "retention": lambda s: s.retention,
    "terminal_ttl": lambda s: s.terminal_ttl,
}
TEXTS: dict[str, Callable[[RendezvousSettings], str]] = {
    "node_name": lambda s: s.node_name,
    "job_token": lambda s: s.job_token,
}
FLAGS: dict[str, Callable[[RendezvousSettings], bool]] = {
    "find_members": lambda s: s.find_members,
}
PAIR = {"keep_alive_interval", "keep_alive_max_attempt"}
CLIENT = {
    "etcd_prefix",
    "protocol",
    "ca_cert",
    "ssl_cert",
    "ssl_cert_key",
    "user",
    "password_file",
}


# Tested in test_rdzv_stores.py.
STORES = {"fallback", "fallback_endpoint", "store_type", "is_host", "secret_file"}


def test_every_documented_key_is_tested_here() -> None:
    assert KEYS.keys() == SECONDS.keys() | TEXTS.keys() | FLAGS.keys() | PAIR | CLIENT | STORES


@pytest.mark.parametrize("key", SECONDS)
@pytest.mark.parametrize("value", ["61.5", 61.5])
def test_a_duration_sets_its_field(key: str, value: object) -> None:
    assert SECONDS[key](settings(**{key: value})) == timedelta(seconds=61.5)


@pytest.mark.parametrize("key", SECONDS)
def test_the_documented_default_is_the_default(key: str) -> None:
    """Of the parsed settings as of those made in code."""
    in_code = RendezvousSettings(run_id="job", min_nodes=1, max_nodes=2)
    assert SECONDS[key](settings()) == SECONDS[key](in_code)
    default = SECONDS[key](in_code)
    if key != "timeout":
        assert f"({'no limit' if default is None else f'{default.total_seconds():g}'})" in KEYS[key]


@pytest.mark.parametrize("key", TEXTS)
def test_a_text_sets_its_field(key: str) -> None:
    assert TEXTS[key](settings(**{key: "x-1"})) == "x-1"
    assert TEXTS[key](settings()) == ""


@pytest.mark.parametrize("key", FLAGS)
def test_a_flag_sets_its_field(key: str) -> None:
    assert [FLAGS[key](settings(**{key: value})) for value in ("1", "no", True)] == [True, False, True]
    assert FLAGS[key](settings()) is False
    assert key in refusal(lambda: settings(**{key: "perhaps"}))


@pytest.mark.parametrize("key", [*SECONDS, *sorted(PAIR)])
@pytest.mark.parametrize("value", ["soon", "", "-1", "nan", "inf", None, "1e400"])
def test_a_duration_that_is_none_is_refused(key: str, value: object) -> None:
    text = refusal(lambda: settings(**{key: value}))
    assert key in text


@pytest.mark.parametrize(
    "key", ["join_timeout", "timeout", "close_timeout", "heartbeat_timeout", "progress_interval"]
)
def test_a_wait_must_be_positive(key: str) -> None:
    assert "positive" in refusal(lambda: settings(**{key: 0}))


@pytest.mark.parametrize("key", ["last_call_timeout", "regroup_timeout", "rejoin_grace", "settle_timeout"])
def test_a_pause_may_be_none(key: str) -> None:
    assert SECONDS[key](settings(**{key: "0"})) == timedelta(0)


def test_no_failsafe_is_no_limit() -> None:
    assert settings(failsafe_timeout="0").failsafe_timeout is None


def test_join_timeout_has_precedence_over_its_other_name() -> None:
    """The launcher gives `timeout` as torchrun does; a user who says `join_timeout` means it."""
    assert settings(timeout=900, join_timeout=5).timeout.join == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("conf", "seconds"),
    [
        ({"keep_alive_interval": "4", "keep_alive_max_attempt": "5"}, 20),
        ({"keep_alive_interval": 4}, 12),
        ({"keep_alive_max_attempt": 4}, 20),
        ({"keep_alive_interval": "0.5", "keep_alive_max_attempt": 6}, 3),
        ({}, 10),
    ],
)
def test_torchs_keep_alive_pair_means_the_time_to_live(conf: dict[str, Any], seconds: float) -> None:
    assert settings(**conf).ttl == timedelta(seconds=seconds)


@pytest.mark.parametrize("key", sorted(PAIR))
def test_the_pair_and_ttl_are_not_both_given(key: str) -> None:
    text = refusal(lambda: settings(ttl=10, **{key: 5}))
    assert "ttl" in text
    assert key in text


def test_a_time_to_live_that_etcd_does_not_grant_is_refused() -> None:
    assert "2 s or more" in refusal(lambda: settings(ttl=1))
    assert "2 s or more" in refusal(lambda: settings(keep_alive_interval=1, keep_alive_max_attempt=1))


@pytest.mark.parametrize("key", ["retention", "terminal_ttl"])
def test_records_outlive_the_nodes(key: str) -> None:
    assert key in refusal(lambda: settings(**{key: 59}))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("last_call_timeut", "last_call_timeout"),
        ("jointimeout", "join_timeout"),
        ("etcd-prefix", "etcd_prefix"),
        ("cacerts", "cacert"),
        ("nodename", "node_name"),
        ("keep_alive_attempt", "keep_alive_max_attempt"),
    ],
)
def test_a_misspelt_key_is_refused_with_what_was_meant(key: str, meant: str) -> None:
    assert f"unknown rendezvous setting {key!r}: did you mean {meant!r}?" in refusal(
        lambda: settings(**{key: "1"})
    )


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    text = refusal(lambda: settings(zzzzzz="1"))
    assert all((f" {key}," in f"{text},") == ("etcd" in BELONGS.get(key, {"etcd"})) for key in KEYS)


def test_a_password_is_refused_with_where_to_put_it() -> None:
    text = refusal(lambda: settings(password="secret"))
    assert "password_file" in text
    assert "ELASTIC_ETCD_PASSWORD" in text
    assert "secret" not in text


# -- run ids, names, bounds -------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", ["a", "job-1", "job.7_x", "é", "1:4", "%41"])
def test_a_plain_run_id_is_taken(run_id: str) -> None:
    assert RendezvousSettings(run_id=run_id, min_nodes=1, max_nodes=1).run_id == run_id


@pytest.mark.parametrize("run_id", ["", " ", "a b", "a/b", "/", "a\n", "\x00", "a\x7f", "\ta", "a\x1fb"])
def test_a_run_id_that_would_spoil_the_keys_is_refused(run_id: str) -> None:
    text = refusal(lambda: RendezvousSettings(run_id=run_id, min_nodes=1, max_nodes=1))
    assert "run id" in text


@pytest.mark.parametrize("name", ["a/b", "a b", "\n"])
def test_a_node_name_that_would_spoil_the_keys_is_refused(name: str) -> None:
    assert "node name" in refusal(lambda: settings(node_name=name))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (3, 2), (0, 0)])
def test_impossible_bounds_are_refused(low: int, high: int) -> None:
    text = refusal(lambda: RendezvousSettings(run_id="a", min_nodes=low, max_nodes=high))
    assert str(low) in text
    refusal(lambda: parameters("a", low, high))


def test_timeouts_made_in_code_are_checked_too() -> None:
    for name in ("join", "close", "heartbeat"):
        assert name in refusal(lambda name=name: RendezvousTimeout(**{name: timedelta(0)}))  # type: ignore[misc]
    assert "last_call" in refusal(lambda: RendezvousTimeout(last_call=timedelta(seconds=-1)))


def test_the_rules_are_the_settings() -> None:
    rules = settings(
        last_call_timeout=1, regroup_timeout=2, rejoin_grace=3, settle_timeout=4, job_token="t"
    ).rules
    assert (rules.min_nodes, rules.max_nodes) == (1, 2)
    assert (rules.last_call, rules.regroup, rules.rejoin_grace, rules.settle) == (1, 2, 3, 4)
    assert rules.job_token == "t"


# -- what goes into the client ----------------------------------------------------------------------


def opened(env: dict[str, str] | None = None, **conf: Any) -> tuple[Client, str]:
    params = parameters(**conf)
    client, prefix = open_run(params, env or {}, settings=RendezvousSettings.from_params(params))
    client.close()
    return client, prefix


@pytest.mark.parametrize(
    ("conf", "prefix"),
    [
        ({}, "/elastic/job/"),
        ({"etcd_prefix": ""}, "/elastic/job/"),
        ({"etcd_prefix": "a"}, "/a/job/"),
        ({"etcd_prefix": "/a/b/"}, "/a/b/job/"),
    ],
)
def test_the_prefix(conf: dict[str, Any], prefix: str) -> None:
    assert opened(**conf)[1] == prefix


@pytest.mark.parametrize(("protocol", "scheme"), [("https", True), ("http", False), ("", False)])
def test_the_protocol(protocol: str, scheme: bool) -> None:
    client, _ = opened(protocol=protocol)
    assert client.endpoints[0].secure is scheme


@pytest.mark.parametrize(
    ("key", "alias"), [("ca_cert", "cacert"), ("ssl_cert", "cert"), ("ssl_cert_key", "key")]
)
def test_torchs_names_of_the_files_are_taken(key: str, alias: str) -> None:
    assert setting(parameters(**{key: "/a"}), key) == "/a"
    assert setting(parameters(**{alias: "/b"}), key) == "/b"
    assert setting(parameters(), key) == ""


@pytest.mark.parametrize("key", ["ca_cert", "cacert"])
def test_a_missing_certificate_is_refused_by_its_name(tmp_path: Path, key: str) -> None:
    missing = tmp_path / "ca.pem"
    assert str(missing) in refusal(lambda: opened({}, **{key: str(missing)}))


def test_a_missing_password_file_is_refused_by_its_name(tmp_path: Path) -> None:
    missing = tmp_path / "password"
    assert str(missing) in refusal(lambda: opened(user="bob", password_file=str(missing)))


@pytest.mark.parametrize("protocol", ["ftp", "HTTPS", "etcd"])
def test_another_protocol_is_refused(protocol: str) -> None:
    assert repr(protocol) in refusal(lambda: opened(protocol=protocol))


def test_an_endpoint_without_a_server_is_a_connection_error() -> None:
    with pytest.raises(RendezvousConnectionError, match=NOBODY):
        create_handler(parameters(connect_timeout=0.3))


@pytest.mark.parametrize("endpoint", ["", "host:port", "host:99999", "a:1,,b:2"])
def test_an_endpoint_that_cannot_be_right_is_refused(endpoint: str) -> None:
    params = RendezvousParameters("etcd", endpoint, "job", 1, 1)
    refusal(lambda: create_handler(params))
