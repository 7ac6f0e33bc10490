"""Kept leases: what they outlive, and that their loss is told once, and in time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.etcd import EtcdServer, wait_until
from support.inbox import Inbox
from support.relay import Relay

from elastic.etcd import Client, LeaseLost, LeaseNotFound, Unavailable


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def relay(etcd: EtcdServer) -> Iterator[Relay]:
    with Relay((etcd.host, etcd.port)) as relay:
        yield relay


@pytest.fixture
def remote(relay: Relay) -> Iterator[Client]:
    """A client whose connection goes through `relay`."""
    with Client([relay.endpoint]) as client:
        yield client


def test_a_kept_lease_outlives_its_ttl(each_etcd: EtcdServer, inbox: Inbox, space: bytes) -> None:
    with Client([each_etcd.endpoint]) as client:
        keeper = client.keep_lease(4, into=inbox)
        client.put(space + b"a", b"", lease=keeper.id)
        assert inbox.is_quiet(2.5 * keeper.ttl)
        assert keeper.alive()
        assert 0 < keeper.remaining() <= keeper.ttl
        assert client.get(space + b"a") is not None
        keeper.close()
        assert not keeper.alive()
        assert client.get(space + b"a") is None
        assert inbox.is_quiet(0.2)


def test_a_lease_revoked_by_somebody_else_is_lost_once(client: Client, inbox: Inbox) -> None:
    keeper = client.keep_lease(6, into=inbox)
    client.lease_revoke(keeper.id)
    lost = inbox.expect(LeaseLost)
    assert lost.keeper is keeper
    assert "revoked" in lost.reason
    assert not keeper.alive()
    assert keeper.remaining() == 0
    assert inbox.is_quiet(2)
    keeper.close()


def test_a_short_outage_is_outlived(remote: Client, relay: Relay, client: Client, inbox: Inbox) -> None:
    keeper = remote.keep_lease(6, into=inbox)
    for fault in (relay.refuse, relay.pause, relay.cut):
        fault()
        assert inbox.is_quiet(2.5)
        relay.heal()
        wait_until(lambda: keeper.remaining() > keeper.ttl - 1.5, what="a renewal")
    assert keeper.alive()
    assert client.keep_alive_once(keeper.id) > 0
    keeper.close()


@pytest.mark.parametrize("fault", ["refuse", "pause", "deafen"])
def test_a_long_outage_loses_the_lease_when_its_time_is_up_and_not_before(
    remote: Client, relay: Relay, inbox: Inbox, fault: str
) -> None:
    keeper = remote.keep_lease(3, into=inbox)
    started = time.monotonic()
    left = keeper.remaining()
    getattr(relay, fault)()
    lost = inbox.expect(LeaseLost)
    # A renewal under way when the fault came may still have counted: but never longer than a ttl from now.
    assert time.monotonic() - started >= left - 0.5
    assert "3 s passed" in lost.reason
    assert not keeper.alive()
    relay.heal()
    assert inbox.is_quiet(2)
    assert inbox.count(LeaseLost) == 1


def is_gone(client: Client, lease: int) -> bool:
    try:
        client.lease_time_to_live(lease)
    except LeaseNotFound:
        return True
    return False


def test_the_holder_knows_before_etcd_does(
    remote: Client, relay: Relay, client: Client, inbox: Inbox
) -> None:
    keeper = remote.keep_lease(4, into=inbox)
    relay.pause()
    # etcd counts from when the renewal arrived, the keeper from when it was sent.
    wait_until(lambda: is_gone(client, keeper.id), what="the end of the lease")
    assert not keeper.alive(), "whenever it is gone there, its holder knows"
    inbox.expect(LeaseLost)
    keeper.close(revoke=False)


def test_no_lease_without_etcd(inbox: Inbox) -> None:
    with Client(["127.0.0.1:1"]) as client, pytest.raises(Unavailable):
        client.keep_lease(2, into=inbox, timeout=0.3)
    assert inbox.items == []


def test_closing_a_keeper_is_bounded_when_etcd_is_away(remote: Client, relay: Relay, inbox: Inbox) -> None:
    keeper = remote.keep_lease(30, into=inbox)
    relay.pause()
    started = time.monotonic()
    keeper.close(timeout=1.0)
    assert time.monotonic() - started < 5
    assert not keeper.alive()
