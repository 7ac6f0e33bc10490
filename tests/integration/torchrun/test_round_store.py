"""The store of a round outlives an outage of etcd, and its waits end with the round. Needs no framework."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from support.etcd import EtcdServer
from support.relay import Relay

from elastic.etcd import Client
from elastic.interop.round_store import RoundOver, RoundStore
from elastic.store import StoreError, StoreTimeoutError
from elastic.store.etcd import EtcdStore


class Round:
    """A round that is over once it is told so."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def over(self) -> str | None:
        return "b was lost" if self._ended.is_set() else None

    def pause(self, seconds: float) -> None:
        self._ended.wait(seconds)


@pytest.fixture
def relay(etcd: EtcdServer) -> Iterator[Relay]:
    with Relay(("127.0.0.1", etcd.port)) as relay:
        yield relay


@pytest.fixture
def round_() -> Round:
    return Round()


@pytest.fixture
def store(relay: Relay, round_: Round) -> Iterator[RoundStore]:
    with Client([relay.endpoint], timeout=0.5) as client:
        prefix = f"test/{uuid.uuid4().hex}/"
        yield RoundStore(EtcdStore(client, prefix), over=round_.over, pause=round_.pause)


def test_what_may_be_repeated_is_until_etcd_is_back(store: RoundStore, relay: Relay) -> None:
    store.set("before", "1", 5)
    relay.refuse()
    with ThreadPoolExecutor(4) as pool:
        calls: list[Future[Any]] = [
            pool.submit(store.set, "a", "2", 30),
            pool.submit(store.get, "before", 30),
            pool.submit(store.wait, ["before"], 30),
            pool.submit(store.check, ["before"], 30),
        ]
        with pytest.raises(StoreError):
            store.set("in vain", "1", 1)
        assert not any(call.done() for call in calls)
        relay.heal()
        assert [call.result(30) for call in calls] == [None, b"1", None, True]
    assert store.get("a", 5) == b"2"


def test_a_wait_ends_with_the_round(store: RoundStore, round_: Round) -> None:
    with ThreadPoolExecutor(2) as pool:
        waits: list[Future[Any]] = [
            pool.submit(store.get, "absent", 60),
            pool.submit(store.wait, ["absent"], 60),
        ]
        round_.end()
        for wait in waits:
            with pytest.raises(RoundOver, match="b was lost"):
                wait.result(30)
    store.set("late", "1", 5)  # what does not wait is done all the same
    assert store.get("late", 5) == b"1"


def test_a_pause_ends_with_the_round(store: RoundStore, relay: Relay, round_: Round) -> None:
    relay.refuse()
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(store.set, "a", "1", 60)
        round_.end()
        with pytest.raises(RoundOver, match="b was lost"):
            setting.result(30)


def test_what_is_not_there_in_time_is_named(store: RoundStore) -> None:
    store.set("there", "1", 5)
    with pytest.raises(StoreTimeoutError, match=r"^not set within 0\.1 s: 'absent', 'missing'$"):
        store.wait(["absent", "there", "missing"], 0.1)
    with pytest.raises(StoreTimeoutError, match=r"^not set within 1\.2 s: 'absent'$"):
        store.get("absent", 1.2)
