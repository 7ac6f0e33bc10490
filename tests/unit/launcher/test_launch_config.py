"""LaunchConfig: defaults, the units of its durations, and what it refuses."""

import dataclasses
import signal
from datetime import timedelta
from typing import Any

import pytest

from elastic.launcher import LaunchConfig, UsageError
from elastic.multiprocessing import DefaultLogsSpecs, Std


def test_the_fields_come_in_torchs_order() -> None:
    names = [field.name for field in dataclasses.fields(LaunchConfig) if not field.kw_only]
    assert names == [
        "min_nodes",
        "max_nodes",
        "nproc_per_node",
        "logs_specs",
        "run_id",
        "role",
        "rdzv_endpoint",
        "rdzv_backend",
        "rdzv_configs",
        "rdzv_timeout",
        "max_restarts",
        "monitor_interval",
        "start_method",
        "log_line_prefix_template",
    ]


def test_one_node_without_an_endpoint_brings_its_own_etcd() -> None:
    assert LaunchConfig().is_standalone
    assert not LaunchConfig(rdzv_endpoint="localhost:2379").is_standalone
    assert not LaunchConfig(rdzv_backend="memory").is_standalone


def test_endpoints_are_read_for_etcd_alone() -> None:
    config = LaunchConfig(rdzv_endpoint="[::1],etcd://a:1")
    assert [str(endpoint) for endpoint in config.etcd_endpoints] == ["[::1]:2379", "a:1"]
    assert LaunchConfig(rdzv_backend="other", rdzv_endpoint="/any/thing").etcd_endpoints == ()


@pytest.mark.parametrize("run_id", ["", "none"])
def test_none_is_no_run_id(run_id: str) -> None:
    assert not LaunchConfig(run_id=run_id).has_run_id


def test_rdzv_timeout_is_the_join_timeout() -> None:
    config = LaunchConfig(rdzv_configs={"ttl": 3}, rdzv_timeout=timedelta(minutes=1))
    assert config.rendezvous_settings == {"ttl": 3, "join_timeout": 60.0}
    assert LaunchConfig().rendezvous_settings == {}


def test_durations_are_timedelta_or_seconds() -> None:
    assert LaunchConfig(monitor_interval=timedelta(milliseconds=50)).monitor_seconds == 0.05
    assert LaunchConfig(shutdown_timeout=timedelta(minutes=2)).shutdown_seconds({}) == 120
    assert LaunchConfig(shutdown_timeout=0).shutdown_seconds({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "9"}) == 0


def test_the_shutdown_timeout_has_a_variable_and_a_default() -> None:
    assert LaunchConfig().shutdown_seconds({}) == 30
    assert LaunchConfig().shutdown_seconds({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}) == 600
    with pytest.raises(UsageError, match="TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon"):
        LaunchConfig().shutdown_seconds({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "soon"})


def test_signals_are_named_in_a_list_or_in_one_string() -> None:
    wanted = (signal.SIGTERM, signal.SIGUSR1)
    assert LaunchConfig(signals_to_handle="SIGTERM,SIGUSR1").signals == wanted
    assert LaunchConfig(signals_to_handle=["SIGTERM", "SIGUSR1"]).signals == wanted


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"min_nodes": 0}, ["min_nodes=0", "1 or more"]),
        ({"min_nodes": 3, "max_nodes": 1}, ["max_nodes=1", "min_nodes=3"]),
        ({"nproc_per_node": 0}, ["nproc_per_node=0"]),
        ({"max_nodes": 2, "run_id": "a"}, ["2 nodes", "--rdzv-endpoint"]),
        ({"max_nodes": 2, "rdzv_endpoint": "a:1"}, ["2 nodes", "--rdzv-id"]),
        ({"max_nodes": 2, "rdzv_endpoint": "a:1", "run_id": "none"}, ["2 nodes", "--rdzv-id"]),
        ({"run_id": "a/b"}, ["'a/b'", "slash"]),
        ({"run_id": "a b"}, ["'a b'", "space"]),
        ({"rdzv_configs": {"min_nodes": "3"}}, ["'min_nodes'", "--nnodes"]),
        ({"rdzv_endpoint": "host:99999"}, ["--rdzv-endpoint", "99999"]),
        ({"rdzv_endpoint": "a:1,,b:1"}, ["--rdzv-endpoint", "empty endpoint"]),
        ({"rdzv_backend": ""}, ["rdzv_backend"]),
        ({"rdzv_timeout": 0}, ["rdzv_timeout=0"]),
        ({"rdzv_timeout": 5, "rdzv_configs": {"join_timeout": 5}}, ["join_timeout", "keep one"]),
        ({"rdzv_timeout": 5, "rdzv_configs": {"timeout": 5}}, ["timeout", "keep one"]),
        ({"role": ""}, ["role"]),
        ({"max_restarts": -1}, ["max_restarts=-1"]),
        ({"monitor_interval": 0}, ["monitor_interval=0"]),
        ({"monitor_interval": float("nan")}, ["monitor_interval=nan"]),
        ({"start_method": "clone"}, ["'clone'", "spawn"]),
        ({"shutdown_timeout": -1}, ["shutdown_timeout=-1"]),
        ({"devices_per_rank": 0}, ["devices_per_rank=0"]),
        ({"signals_to_handle": "SIGTREM"}, ["'SIGTREM'", "no signal"]),
        ({"signals_to_handle": "SIGKILL"}, ["SIGKILL", "nobody"]),
        ({"signals_to_pass_on": "SIGSTOP"}, ["signals_to_pass_on", "SIGSTOP", "nobody"]),
        ({"notice_signal": "USR1"}, ["notice_signal", "'USR1'", "no signal"]),
        ({"notice_timeout": -1}, ["notice_timeout=-1"]),
        ({"restart_backoff": float("inf")}, ["restart_backoff=inf"]),
        ({"max_same_failures": -1}, ["max_same_failures=-1"]),
        ({"local_ranks_filter": [1]}, ["local rank 1", "1 workers"]),
        ({"log_max_size": 0}, ["log_max_size=0", "1 or more"]),
        ({"log_keep": 0}, ["log_keep=0", "1 or more"]),
        ({"log_line_prefix_template": "${rnak}"}, ["log_line_prefix_template", "rnak", "local_rank"]),
        ({"logs_specs": DefaultLogsSpecs(), "ranks_filter": [0]}, ["logs_specs and ranks_filter"]),
        ({"logs_specs": DefaultLogsSpecs(), "tee": Std.ALL, "log_dir": "x"}, ["log_dir, tee", "keep one"]),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        LaunchConfig(**settings)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_signal_that_ends_the_agent_is_not_passed_on() -> None:
    config = LaunchConfig(signals_to_handle="SIGTERM,SIGUSR1")
    assert config.passed_signals == (signal.SIGUSR2,)
    assert LaunchConfig(signals_to_pass_on="").passed_signals == ()
    assert LaunchConfig(notice_signal="SIGUSR2").notice_number == signal.SIGUSR2
    assert LaunchConfig().notice_number == 0
