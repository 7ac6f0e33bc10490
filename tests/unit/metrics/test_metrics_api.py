"""Values reach the handler of their group, and only that; what is measured is never harmed by it."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from typing import Any

import pytest

from elastic import metrics
from elastic.metrics import (
    ConsoleMetricHandler,
    MetricData,
    MetricHandler,
    MetricsConfig,
    NullMetricHandler,
    PrometheusMetricHandler,
    api,
    configure,
    getStream,
    initialize_metrics,
    prof,
    put_metric,
)


class Kept(MetricHandler):
    def __init__(self) -> None:
        self.data: list[MetricData] = []

    def emit(self, metric_data: MetricData) -> None:
        self.data.append(metric_data)

    @property
    def values(self) -> list[tuple[str, str, float]]:
        return [(data.group_name, data.name, data.value) for data in self.data]

    @property
    def names(self) -> list[str]:
        return [data.name for data in self.data]


class Failing(MetricHandler):
    def emit(self, metric_data: MetricData) -> None:
        raise OSError("the sink is down")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_by_group", {})
    monkeypatch.setattr(api, "_default", NullMetricHandler())
    monkeypatch.setattr(api, "_told", set())


@pytest.fixture
def kept() -> Kept:
    """Gets the values of every group that has no other handler."""
    handler = Kept()
    configure(handler)
    return handler


def test_by_default_values_are_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    put_metric("m", 1)
    assert capfd.readouterr() == ("", "")


def test_a_value_goes_to_the_handler_of_its_group(kept: Kept) -> None:
    own = Kept()
    configure(own, "own")
    put_metric("m", 1, "own")
    put_metric("m", 2, "other")
    put_metric("m", 3)
    getStream("own").add_value("n", 4)
    assert own.values == [("own", "m", 1), ("own", "n", 4)]
    assert kept.values == [("other", "m", 2), ("torchelastic", "m", 3)]
    assert kept.data[0].timestamp > 0


def test_the_names_of_the_other_peer_are_accepted(kept: Kept) -> None:
    put_metric(name="m", value=1, group="g", interval_ms=500)
    put_metric("m", value=0)
    prof(group="g", interval_ms=500)(module_level)()
    assert kept.values[:2] == [("g", "m", 1), ("torchelastic", "m", 0)]
    assert kept.data[2].group_name == getStream("g").name
    with pytest.raises(TypeError, match="metric_name or name, which are the same, and got both"):
        put_metric("m", 1, name="m")
    with pytest.raises(TypeError, match="needs a name and a value"):
        put_metric("m")


def test_the_console_prints_a_line_as_torch_does(capsys: pytest.CaptureFixture[str]) -> None:
    configure(ConsoleMetricHandler())
    put_metric("m", 1, "g")
    assert re.fullmatch(r"\[\d+\.\d+\]\[g\]: m=1\n", capsys.readouterr().out)


def test_a_handler_that_fails_harms_nobody_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    configure(Failing())

    @prof
    def work() -> int:
        return 5

    assert work() == 5
    put_metric("m", 1)
    (told,) = caplog.messages
    assert "the sink is down" in told


def test_a_function_is_measured(kept: Kept) -> None:
    @prof
    def work(a: int, *, b: int = 1) -> int:
        """What it does."""
        return a + b

    assert work(1, b=2) == 3
    assert (work.__name__, work.__doc__) == ("work", "What it does.")
    name = "test_a_function_is_measured.<locals>.work"
    assert kept.names == [f"{name}.success", f"{name}.duration.ms"]
    assert {data.group_name for data in kept.data} == {"torchelastic"}
    assert kept.data[0].value == 1
    assert isinstance(kept.data[1].value, int)


def module_level() -> None:
    pass


class Worker:
    @prof(group="mine")
    def work(self) -> None:
        raise LookupError("lost")


def test_names_are_those_of_the_class_or_the_module(kept: Kept) -> None:
    with pytest.raises(LookupError, match="lost"):
        Worker().work()
    prof(module_level)()
    assert kept.names == [
        "Worker.work.failure",
        "Worker.work.duration.ms",
        "test_metrics_api.module_level.success",
        "test_metrics_api.module_level.duration.ms",
    ]
    assert [data.group_name for data in kept.data] == ["mine"] * 2 + ["torchelastic"] * 2


def test_an_async_function_is_measured_to_its_end(kept: Kept) -> None:
    during: list[list[str]] = []

    @prof(group="g")
    async def work(fail: bool) -> str:
        await asyncio.sleep(0)
        during.append(kept.names)
        if fail:
            raise LookupError("lost")
        return "done"

    async def cancelled() -> None:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        await task

    @prof(group="g")
    async def wait() -> None:
        await asyncio.Event().wait()

    assert asyncio.run(work(False)) == "done"
    with pytest.raises(LookupError, match="lost"):
        asyncio.run(work(True))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert during[0] == []
    endings = [name.rpartition(".<locals>.")[2] for name in kept.names]
    assert endings == [
        *("work.success", "work.duration.ms", "work.failure", "work.duration.ms"),
        "wait.duration.ms",  # cancelled: neither a success nor a failure
    ]


def test_durations_do_not_follow_the_wall_clock(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", iter([1e9, 0.0, -1e9]).__next__)
    prof(module_level)()
    assert 0 <= kept.data[-1].value < 60_000


def test_a_configuration_names_handlers_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    initialize_metrics(MetricsConfig({"a": "console", "b": "null"}))
    for group in ("a", "b", "c"):
        put_metric("m", 1, group)
    assert capsys.readouterr().out.count("[a]: m=1") == 1
    initialize_metrics(MetricsConfig({"default_handler": "console"}))
    put_metric("m", 1, "c")
    put_metric("m", 1, "b")
    assert "[c]: m=1" in (out := capsys.readouterr().out)
    assert "[b]" not in out
    initialize_metrics()
    initialize_metrics(MetricsConfig())
    put_metric("m", 1, "c")
    assert capsys.readouterr().out == ""


def test_a_configuration_is_checked_when_it_is_made() -> None:
    assert MetricsConfig(cfg={"a": "null"}).params == MetricsConfig({"a": "null"}).cfg == {"a": "null"}
    assert MetricsConfig(None, "console").default_handler == "console"
    with pytest.raises(
        ValueError, match=r"'consol' for 'a': did you mean 'console'\? known are null, console"
    ):
        MetricsConfig({"a": "consol"})
    with pytest.raises(ValueError, match="for 'default_handler'"):
        MetricsConfig(default_handler="x")
    with pytest.raises(TypeError, match="got both"):
        MetricsConfig({}, cfg={})
    with pytest.raises(TypeError, match="params is 'console': give names of handlers by group"):
        MetricsConfig("console")  # type: ignore[arg-type]


@pytest.mark.parametrize("handler", ["console", None])
def test_what_is_no_handler_is_refused(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"is no handler of metrics: give an object with emit\(metric_data\)"):
        configure(handler)


def test_the_handler_for_prometheus_adds_values_up() -> None:
    handler = PrometheusMetricHandler()
    configure(handler)

    def put() -> None:
        for i in range(500):
            put_metric("m", i, "g")

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    put_metric("m", 0.5, "g")
    tallies, dropped = handler.tallies()
    (tally,) = tallies.values()
    assert (tally.count, tally.total, tally.last) == (2001, 4 * sum(range(500)) + 0.5, 0.5)
    assert dropped == 0


def test_what_cannot_be_added_up_spoils_no_sum(caplog: pytest.LogCaptureFixture) -> None:
    handler = PrometheusMetricHandler()
    configure(handler)
    for value in (1.0, float("nan"), float("inf"), 2.0):
        put_metric("loss", value)
    assert [tally.total for tally in handler.tallies()[0].values()] == [3.0]
    assert len(caplog.messages) == 1
    assert "nan can't be added up" in caplog.messages[0]


def test_names_made_from_data_cannot_fill_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    configure(PrometheusMetricHandler(limit=3), "g")
    for i in range(10):
        put_metric(f"m{i % 5}", i, "g")
    handler = getStream("g").handler
    assert isinstance(handler, PrometheusMetricHandler)
    tallies, dropped = handler.tallies()
    assert [name for _, name in tallies] == ["m0", "m1", "m2"]
    assert dropped == 4
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_what_the_documentation_names_is_here() -> None:
    for name in ("configure", "MetricsConfig", "prof"):
        assert name in metrics.__all__
