"""Users and passwords: tokens that end, servers that forget them, and watches that are refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.etcd import BINARIES, EtcdServer, enable_auth
from support.inbox import Inbox
from support.relay import Relay

from elastic.etcd import (
    AuthFailed,
    Client,
    PermissionDenied,
    WatchBatch,
    WatchEnded,
    WatchInterrupted,
    prefix,
)


@pytest.fixture(params=list(BINARIES))
def guarded(request: pytest.FixtureRequest, etcd_server: Callable[..., EtcdServer]) -> EtcdServer:
    """A server with users, whose tokens end after a second without use."""
    server = etcd_server(version=request.param, arguments=["--auth-token-ttl=1"])
    enable_auth(server)
    return server


@pytest.fixture
def bob(guarded: EtcdServer) -> Iterator[Client]:
    with Client([guarded.endpoint], user="bob", password="secret") as client:
        yield client


def test_an_expired_token_is_renewed_for_calls_leases_and_watches(bob: Client) -> None:
    inbox = Inbox()
    watch = bob.watch([prefix(b"bob/")], into=inbox, start_revision=bob.put(b"bob/a", b"1"))
    keeper = bob.keep_lease(5, into=inbox)
    inbox.expect(WatchBatch)
    time.sleep(6)  # etcd drops tokens lazily, some seconds after their time
    bob.put(b"bob/a", b"2", lease=keeper.id)
    late = Inbox()
    bob.watch([prefix(b"bob/")], into=late, start_revision=1)
    assert [event.kv.value for event in late.events(2)] == [b"1", b"2"]
    assert keeper.alive()
    watch.close()


def test_a_watch_with_an_expired_token_gets_a_new_one(guarded: EtcdServer) -> None:
    inbox = Inbox()
    with (
        Relay((guarded.host, guarded.port)) as relay,
        Client([relay.endpoint], user="bob", password="secret") as bob,
    ):
        start = bob.put(b"bob/a", b"1")
        bob.watch([prefix(b"bob/")], into=inbox, start_revision=start)
        inbox.expect(WatchBatch)
        time.sleep(4)
        relay.cut()
        bob.put(b"bob/a", b"2")
        assert [event.kv.value for event in inbox.events(1)] == [b"2"]
        assert inbox.count(WatchInterrupted) == 1


def test_a_restarted_server_has_forgotten_all_tokens(guarded: EtcdServer, bob: Client) -> None:
    inbox = Inbox()
    bob.watch([prefix(b"bob/")], into=inbox, start_revision=bob.put(b"bob/a", b"1"))
    inbox.expect(WatchBatch)
    guarded.kill()
    guarded.start()
    # Many threads at once need the new token.
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: bob.put(b"bob/%d" % number, b"", timeout=20), range(8)))
    keys: set[bytes] = set()
    while len(keys) < 8:  # a put whose answer was late is sent again, and is two events
        keys |= {event.kv.key for event in inbox.events(1)}
    assert keys == {b"bob/%d" % number for number in range(8)}


def test_a_change_of_the_users_does_not_disturb(guarded: EtcdServer, bob: Client) -> None:
    bob.put(b"bob/a", b"1")
    guarded.ctl("--user=root:root", "user", "add", "carol:x")
    bob.put(b"bob/a", b"2")
    assert bob.get(b"bob/a") is not None


def test_a_refused_watch_ends_in_words(bob: Client) -> None:
    inbox = Inbox()
    allowed = bob.watch([prefix(b"bob/")], into=inbox, start_revision=bob.put(b"bob/a", b"1"))
    inbox.expect(WatchBatch)
    refused = bob.watch([prefix(b"bob/"), prefix(b"alice/")], into=inbox)
    ended = inbox.find(WatchEnded)
    assert ended.watch is refused
    assert isinstance(ended.error, PermissionDenied)
    assert "grant" in str(ended.error)
    # The other watch of the same client goes on.
    bob.put(b"bob/a", b"2")
    batch = inbox.find(WatchBatch)
    assert batch.watch is allowed


def test_wrong_or_missing_passwords_do_not_loop(guarded: EtcdServer) -> None:
    started = time.monotonic()
    for options in ({"user": "bob", "password": "guess"}, {"user": "nobody", "password": "secret"}, {}):
        inbox = Inbox()
        with Client([guarded.endpoint], timeout=60, **options) as client:  # type: ignore[arg-type]
            with pytest.raises(AuthFailed):
                client.put(b"bob/a", b"")
            client.watch([b"bob/a"], into=inbox)
            assert isinstance(inbox.find(WatchEnded).error, AuthFailed)
    assert time.monotonic() - started < 30
