"""LaunchConfig: defaults, the units of its durations, and what it refuses."""

import dataclasses
import signal
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
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


@pytest.mark.parametrize(
    ("backend", "endpoint", "expected"),
    [
        ("etcd", "", True),
        ("etcd", "localhost:2379", False),
        ("c10d", "", True),
        ("p10d", "localhost:0", True),
        ("tcp", "127.0.0.1:0", True),
        ("c10d", "localhost:29400", False),
        ("static", "", False),  # its handler brings the store
        ("file", "/shared/job", False),
        ("memory", "", False),
    ],
)
def test_one_node_without_an_endpoint_brings_its_own_rendezvous(
    backend: str, endpoint: str, expected: bool
) -> None:
    assert LaunchConfig(rdzv_backend=backend, rdzv_endpoint=endpoint).is_standalone is expected


@pytest.mark.parametrize(
    ("backend", "endpoint", "expected"),
    [
        ("etcd", "[::1],etcd://a:1", ["[::1]:2379", "a:1"]),
        ("etcd", "fe80::1%eth0", ["[fe80::1%eth0]:2379"]),
        ("c10d", "node0", ["node0:29400"]),
        ("p10d", "[::1]:29401", ["[::1]:29401"]),
        ("tcp", "::1", ["[::1]:29400"]),
        ("static", "node0", ["node0:29500"]),
        ("static", "[fd00::2]:1", ["[fd00::2]:1"]),
        ("file", "/any/thing", []),
        ("other", "/any/thing", []),
    ],
)
def test_an_endpoint_is_read_as_its_backend_has_it(backend: str, endpoint: str, expected: list[str]) -> None:
    config = LaunchConfig(rdzv_backend=backend, rdzv_endpoint=endpoint)
    assert [str(endpoint) for endpoint in config.endpoints] == expected


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [
        ({}, ""),
        ({"master_addr": "node0"}, "node0"),
        ({"master_addr": "::1"}, "::1"),
        ({"master_addr": "::1", "master_port": 29501}, "[::1]:29501"),
        ({"master_port": 29501}, "127.0.0.1:29501"),
        ({"master_addr": "node0", "master_port": 0}, "node0"),
        ({"master_addr": "node0", "rdzv_endpoint": "node9:1"}, "node9:1"),
    ],
)
def test_static_nodes_meet_at_the_master(settings: dict[str, Any], endpoint: str) -> None:
    config = LaunchConfig(rdzv_backend="static", **settings)
    assert config.endpoint == endpoint
    assert config.rendezvous_settings == {"rank": 0}


def test_static_nodes_need_no_name_of_the_job_and_say_which_they_are() -> None:
    config = LaunchConfig(2, 2, rdzv_backend="static", master_addr="a", node_rank=1, rdzv_timeout=9)
    assert config.rendezvous_settings == {"rank": 1, "join_timeout": 9}
    given = LaunchConfig(2, 2, rdzv_backend="static", rdzv_endpoint="a", rdzv_configs={"rank": 1})
    assert given.rendezvous_settings == {"rank": 1}


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
        ({"max_nodes": 2, "rdzv_backend": "c10d", "run_id": "a"}, ["2 nodes", "store", "--rdzv-endpoint"]),
        ({"max_nodes": 2, "rdzv_backend": "c10d", "rdzv_endpoint": "a"}, ["2 nodes", "--rdzv-id"]),
        ({"max_nodes": 2, "rdzv_backend": "file", "rdzv_endpoint": "/f"}, ["2 nodes", "--rdzv-id"]),
        ({"rdzv_backend": "file"}, ["file", "--rdzv-endpoint=/PATH"]),
        ({"min_nodes": 2, "max_nodes": 2, "rdzv_backend": "static"}, ["2 nodes", "--master-addr=HOST"]),
        (
            {"min_nodes": 2, "max_nodes": 2, "rdzv_backend": "static", "master_port": 1},
            ["--master-addr=HOST"],
        ),
        ({"max_nodes": 3, "rdzv_backend": "static", "master_addr": "a"}, ["1:3", "range", "one number"]),
        ({"rdzv_backend": "static", "node_rank": 1}, ["--node-rank=1", "1 nodes"]),
        ({"rdzv_backend": "etcd-v2"}, ["etcd-v2", "v3"]),
        ({"rdzv_backend": "c10d", "rdzv_endpoint": "a:1,b:1"}, ["2 hosts", "c10d", "name that one"]),
        ({"rdzv_backend": "c10d", "rdzv_endpoint": "etcd://a"}, ["scheme", "drop it"]),
        ({"rdzv_backend": "c10d", "rdzv_endpoint": "a:x"}, ["--rdzv-endpoint", "'x'"]),
        ({"rdzv_backend": "static", "rdzv_endpoint": "a:99999"}, ["99999"]),
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
        ({"min_nodes": "1"}, ["min_nodes='1'", "give a whole number"]),
        ({"nproc_per_node": "gpu"}, ["nproc_per_node='gpu'", "whole number"]),
        ({"max_restarts": 1.5}, ["max_restarts=1.5", "whole number"]),
        ({"max_restarts": True}, ["max_restarts=True", "whole number"]),
        ({"run_id": 7}, ["run_id=7", "give text"]),
        ({"rdzv_endpoint": ["a:1"]}, ["rdzv_endpoint=['a:1']", "text"]),
        ({"rdzv_configs": "ttl=3"}, ["rdzv_configs='ttl=3'", "a dict from text to anything"]),
        ({"rdzv_timeout": "5"}, ["rdzv_timeout='5'", "a number or a timedelta"]),
        ({"exit_barrier_timeout": None}, ["exit_barrier_timeout=None", "a number"]),
        ({"signals_to_handle": 15}, ["signals_to_handle=15", "text or a list of text"]),
        ({"log_dir": 5}, ["log_dir=5", "text or PathLike or None"]),
        ({"redirects": 3}, ["redirects=3", "Std or a dict from whole numbers to Std or Redirects or None"]),
        ({"devices": "0-3"}, ["devices='0-3'", "a list of text or None"]),
        ({"devices": [0, 1]}, ["devices=[0, 1]", "a list of text or None"]),
        ({"tee": {"0": Std.ALL}}, ["tee={'0'", "a dict from whole numbers to Std"]),
        ({"local_ranks_filter": ["0"]}, ["local_ranks_filter=['0']", "a list of whole numbers"]),
        ({"duplicate_stdout_filters": "loss"}, ["duplicate_stdout_filters='loss'", "a list"]),
        ({"dump_stacks": "yes"}, ["dump_stacks='yes'", "True or False"]),
        ({"metrics_cfg": ["torchelastic"]}, ["metrics_cfg=['torchelastic']", "a dict from text to text"]),
        ({"instruments": {}}, ["instruments={}", "InstrumentSettings"]),
        ({"numa_options": "node"}, ["numa_options='node'", "NumaOptions"]),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        LaunchConfig(**settings)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "settings",
    [
        {"log_dir": Path("logs")},
        {"local_ranks_filter": {0}},
        {"devices": ("0", "1")},
        {"tee": {0: Std.ALL}},
        {"shutdown_timeout": Fraction(1, 2)},
        {"rdzv_configs": MappingProxyType({"ttl": 3})},
    ],
)
def test_values_of_like_types_will_do(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    assert getattr(LaunchConfig(**settings), name) is value


def test_a_signal_that_ends_the_agent_is_not_passed_on() -> None:
    config = LaunchConfig(signals_to_handle="SIGTERM,SIGUSR1")
    assert config.passed_signals == (signal.SIGUSR2,)
    assert LaunchConfig(signals_to_pass_on="").passed_signals == ()
    assert LaunchConfig(notice_signal="SIGUSR2").notice_number == signal.SIGUSR2
    assert LaunchConfig().notice_number == 0
