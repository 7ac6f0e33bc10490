"""What a rendezvous is asked for, and what it answers: the documented types."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from elastic.rendezvous import RendezvousInfo, RendezvousParameters, RendezvousStatus, Standing


def parameters(**conf: Any) -> RendezvousParameters:
    return RendezvousParameters("etcd", "a:1", "job", 1, 2, **conf)


def test_what_is_given_is_kept() -> None:
    params = RendezvousParameters("etcd", "a:1", "job", 1, 2, "10.0.0.1", one="1", two=2)
    assert (params.backend, params.endpoint, params.run_id) == ("etcd", "a:1", "job")
    assert (params.min_nodes, params.max_nodes, params.local_addr) == (1, 2, "10.0.0.1")
    assert params.config == {"one": "1", "two": 2}
    assert parameters().local_addr is None


@pytest.mark.parametrize(
    ("backend", "low", "high", "word"),
    [("", 1, 1, "name"), ("etcd", 0, 1, "min_nodes"), ("etcd", -2, 1, "-2"), ("etcd", 3, 1, "max_nodes")],
)
def test_what_cannot_be_is_refused(backend: str, low: int, high: int, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        RendezvousParameters(backend, "a:1", "job", low, high)


def test_get() -> None:
    assert parameters(a="x").get("a") == "x"
    assert parameters().get("a") is None
    assert parameters().get("a", 3) == 3


@pytest.mark.parametrize("value", ["1", "true", "True", "TRUE", "t", "yes", "Y", 1, True])
def test_true(value: object) -> None:
    assert parameters(a=value).get_as_bool("a") is True


@pytest.mark.parametrize("value", ["0", "false", "False", "f", "no", "N", 0, False])
def test_false(value: object) -> None:
    assert parameters(a=value).get_as_bool("a") is False


@pytest.mark.parametrize("value", ["", "2", "on", "maybe", 2, 0.5, []])
def test_neither_true_nor_false(value: object) -> None:
    with pytest.raises(ValueError, match=r"a=.* is neither true nor false"):
        parameters(a=value).get_as_bool("a")


def test_bool_default() -> None:
    assert parameters().get_as_bool("a") is None
    assert parameters().get_as_bool("a", True) is True
    assert parameters(a="no").get_as_bool("a", True) is False


@pytest.mark.parametrize(("value", "number"), [("12", 12), (12, 12), ("-3", -3), (" 4 ", 4)])
def test_whole_numbers(value: object, number: int) -> None:
    assert parameters(a=value).get_as_int("a") == number


@pytest.mark.parametrize("value", ["", "1.5", "x", [], {}, 1.5, "1e3", float("inf"), float("nan")])
def test_no_whole_numbers(value: object) -> None:
    with pytest.raises(ValueError, match=r"a=.* is not a whole number"):
        parameters(a=value).get_as_int("a")


def test_int_default() -> None:
    assert parameters().get_as_int("a") is None
    assert parameters().get_as_int("a", 7) == 7


@pytest.mark.parametrize(("value", "seconds"), [("1.5", 1.5), (2, 2.0), ("0", 0.0), ("1e2", 100.0)])
def test_seconds(value: object, seconds: float) -> None:
    assert parameters(a=value).get_as_seconds("a", 9) == seconds
    assert parameters().get_as_seconds("a", 9) == 9


@pytest.mark.parametrize("value", ["", "-0.1", "x", "nan", "inf", "-inf", None, [], "1s"])
def test_no_seconds(value: object) -> None:
    with pytest.raises(ValueError, match=r"a=.* is not a number of seconds"):
        parameters(a=value).get_as_seconds("a", 9)


def test_the_outcome_has_the_documented_fields() -> None:
    names = [field.name for field in dataclasses.fields(RendezvousInfo)]
    assert names[:4] == ["store", "rank", "world_size", "bootstrap_store_info"]
    assert {"round", "participants", "waiting"} <= set(names)


def test_a_status_that_says_nothing_disturbs_nobody() -> None:
    status = RendezvousStatus()
    assert (status.standing, status.nodes_waiting, status.connected) == (Standing.CURRENT, 0, True)
