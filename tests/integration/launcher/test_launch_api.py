"""Launching from Python: return values, errors, and what is left as it was."""

import os
import sys
import threading
from pathlib import Path

import pytest

from elastic.launcher import LaunchConfig, UsageError, elastic_launch, launch_agent
from elastic.metrics import MetricsConfig, initialize_metrics
from elastic.multiprocessing import Std
from elastic.multiprocessing.errors import ChildFailedError


def rank_plus(number: int) -> int:
    return int(os.environ["RANK"]) + number


def fail(_: str) -> None:
    raise RuntimeError("no such shard")


def test_a_function_returns_a_value_for_each_rank() -> None:
    before = dict(os.environ)
    for method in ("spawn", "fork", "forkserver"):
        config = LaunchConfig(1, 1, 2, start_method=method)
        assert elastic_launch(config, rank_plus)(10) == {0: 10, 1: 11}
    assert dict(os.environ) == before


def test_a_program_returns_none_for_each_rank(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os; print('rank', os.environ['RANK'])")
    config = LaunchConfig(1, 1, 2, log_dir=str(tmp_path / "logs"), redirects=Std.OUT)
    assert launch_agent(config, sys.executable, ["-u", str(script)]) == {0: None, 1: None}
    written = sorted(path.read_text() for path in (tmp_path / "logs").rglob("stdout.log"))
    assert written == ["rank 0\n", "rank 1\n"]


def test_a_worker_that_fails_is_reported_by_rank() -> None:
    with pytest.raises(ChildFailedError) as caught:
        elastic_launch(LaunchConfig(max_restarts=0), fail)("x")
    assert list(caught.value.failures) == [0]
    assert "no such shard" in str(caught.value)
    assert "fail FAILED" in str(caught.value)


def test_no_entrypoint_is_refused() -> None:
    with pytest.raises(UsageError, match="no entrypoint"):
        launch_agent(LaunchConfig(), None, [])


@pytest.mark.parametrize(
    ("settings", "words"), [({"tlt": 3}, "did you mean 'ttl'"), ({"ttl": "soon"}, "ttl='soon'")]
)
def test_settings_that_the_backend_does_not_know_are_refused(settings: dict[str, object], words: str) -> None:
    config = LaunchConfig(rdzv_endpoint="192.0.2.1:2379", rdzv_configs=settings)
    with pytest.raises(UsageError, match=words):
        launch_agent(config, rank_plus, [1])


def test_off_the_main_thread_it_works_as_well() -> None:
    values: list[dict[int, int]] = []
    thread = threading.Thread(target=lambda: values.append(elastic_launch(LaunchConfig(), rank_plus)(1)))
    thread.start()
    thread.join()
    assert values == [{0: 1}]


def test_metrics_of_the_agent_go_where_the_configuration_says(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        elastic_launch(LaunchConfig(metrics_cfg={"torchelastic": "console"}), rank_plus)(1)
    finally:
        initialize_metrics(MetricsConfig({"torchelastic": "null"}))
    assert "workers.default_role.run_total=1" in capfd.readouterr().out


def test_a_handler_of_metrics_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match=r"metrics_cfg=\{'a': 'consol'\}: .*did you mean 'console'"):
        elastic_launch(LaunchConfig(metrics_cfg={"a": "consol"}), rank_plus)(1)
