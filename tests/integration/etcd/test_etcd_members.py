"""Members that no endpoint names: taken from the member list, proven, and used only in need."""

from __future__ import annotations

import time

import pytest
from support.etcd import EtcdCluster, EtcdServer, wait_until

from elastic.etcd import Client, Member, Unavailable
from elastic.etcd.members import addresses
from elastic.utils.endpoints import Endpoint, parse_endpoints


def member(*urls: str, number: int = 1, learner: bool = False) -> Member:
    return Member(number, f"m{number}", urls, (), learner)


def texts(members: list[Member], given: str, *, secure: bool = False) -> list[str]:
    found = addresses(members, given=parse_endpoints(given, default_port=2379), secure=secure)
    return [str(endpoint) for endpoint in found]


def test_addresses_that_are_of_use_here() -> None:
    members = [member("http://10.0.0.1:2379", "unix:///run/etcd"), member("http://b:1234", number=2)]
    assert texts(members, "a:2379") == ["10.0.0.1:2379", "b:1234"]
    # An address of the loopback is whatever etcd this machine has, unless that is what was asked for.
    near = [member("http://localhost:2379"), member("http://127.0.0.1:1"), member("http://0.0.0.0:2379")]
    assert texts(near, "a:2379") == []
    assert texts(near, "127.0.0.1:1") == ["localhost:2379", "127.0.0.1:1", "0.0.0.0:2379"]
    # Passwords go over TLS where that was asked for, and nobody answers TLS where it was not.
    both = [member("http://a:1", "https://a:2")]
    assert texts(both, "a:3") == ["a:1"]
    assert texts(both, "https://a:3", secure=True) == ["a:2"]
    assert texts([member("http://a:1", learner=True)], "a:3") == []


def test_members_found_are_used_when_those_given_are_gone(etcd_cluster: EtcdCluster) -> None:
    given, *others = etcd_cluster.members
    with Client([given.endpoint]) as client:
        for _ in range(2):  # asking again finds the same
            found = client.sync()
            assert sorted(map(str, found)) == sorted(etcd_cluster.endpoints)
            assert str(found[0]) == given.endpoint
        assert client.status().endpoint == given.endpoint
        given.kill()
        client.put(b"a", b"1", timeout=20)
        assert client.status().endpoint in {other.endpoint for other in others}
        given.start().wait_ready()
        deadline = time.monotonic() + 20
        while client.status().endpoint != given.endpoint:
            assert time.monotonic() < deadline, "what was given is used again once it works"
            time.sleep(0.05)


def test_an_address_that_is_another_etcd_is_not_taken(etcd_cluster: EtcdCluster, etcd: EtcdServer) -> None:
    """One member claims the address of an etcd that is another one, and one an address of nobody."""
    first, second, third = etcd_cluster.members
    for liar, url in ((second, etcd.url), (third, "http://127.0.0.1:1")):
        liar.stop()
        liar.advertised = url
        liar.start().wait_ready()
    with Client([first.endpoint]) as client:
        told = {first.url, etcd.url, "http://127.0.0.1:1"}
        wait_until(
            lambda: {url for each in client.member_list() for url in each.client_urls} == told,
            what="the first member to have heard what the others claim",
        )
        assert client.sync() == (Endpoint("etcd", first.host, first.port),)
        # What could not be taken is no endpoint that calls are wasted on.
        first.kill()
        with pytest.raises(Unavailable) as caught:
            client.get(b"a", timeout=2)
        assert str(etcd.port) not in str(caught.value)
