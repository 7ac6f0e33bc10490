"""TCPStore and its server when connections break, servers end, and clients come and go."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.blocking import PATIENCE, Blocked
from support.etcd import free_port
from support.relay import Relay

from elastic.store import (
    Limits,
    Store,
    StoreDeniedError,
    StoreError,
    StoreTimeoutError,
    TCPStore,
    TCPStoreServer,
)
from elastic.store.connection import Broken, Connection
from elastic.store.handshake import new_id
from elastic.store.messages import Op, Request

HOST = "127.0.0.1"


@pytest.fixture
def server() -> Iterator[TCPStoreServer]:
    # Its port is not of the range from which its clients dial: one that dials a closed port of that range
    # can meet itself, and the port can be another's before the server is back.
    with TCPStoreServer(HOST, free_port()) as server:
        yield server


@pytest.fixture
def store(server: TCPStoreServer) -> Iterator[TCPStore]:
    """A client with a connection that nothing disturbs."""
    with TCPStore(HOST, server.port, timeout=PATIENCE) as store:
        yield store


@pytest.fixture
def relay(server: TCPStoreServer) -> Iterator[Relay]:
    with Relay((HOST, server.port)) as relay:
        yield relay


@pytest.fixture
def far(relay: Relay) -> Iterator[TCPStore]:
    """A client on the other side of the relay."""
    with TCPStore(HOST, relay.port, timeout=PATIENCE, heartbeat=0.2) as far:
        yield far


# -- broken connections -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "answer", "value"),
    [
        (lambda s: s.add("a", 5), 6, b"6"),
        (lambda s: s.append("a", "x"), None, b"1x"),
        (lambda s: s.compare_set("a", "1", "2"), b"2", b"2"),
        (lambda s: s.delete_key("a"), True, None),
    ],
)
def test_a_write_whose_answer_is_lost_is_done_once(
    store: TCPStore,
    far: TCPStore,
    relay: Relay,
    write: Callable[[Store], object],
    answer: object,
    value: bytes | None,
) -> None:
    store.set("a", "1")
    relay.deafen()
    call = Blocked(lambda: write(far))
    assert store.wait_change("a", b"1")
    relay.cut()
    relay.heal()
    assert call.result() == answer
    assert store.peek("a") == value


def test_a_lost_set_does_not_undo_what_another_set_meanwhile(
    store: TCPStore, far: TCPStore, relay: Relay
) -> None:
    relay.deafen()
    call = Blocked(lambda: far.set("a", "old"))
    assert store.wait_change("a", None)
    store.set("a", "new")
    relay.cut()
    relay.heal()
    assert call.result() is None
    assert store.get("a") == b"new"


def test_counting_goes_on_over_broken_connections(store: TCPStore, far: TCPStore, relay: Relay) -> None:
    def count(_: int) -> list[int]:
        return [far.add("n", 1) for _ in range(25)]

    with ThreadPoolExecutor(4) as pool:
        counting = pool.map(count, range(4))
        seen: bytes | None = None
        for cut in range(10):
            while int(seen or 0) < 10 * cut:
                assert store.wait_change("n", seen)
                seen = store.peek("n")
            relay.cut()
        totals = [total for each in counting for total in each]
    assert sorted(totals) == list(range(1, 101))
    assert store.get("n") == b"100"


def test_blocked_calls_go_on_over_a_broken_connection(store: TCPStore, far: TCPStore, relay: Relay) -> None:
    calls = [Blocked(lambda: far.get("a")), Blocked(lambda: far.wait_change("b", None))]
    assert calls[0].still()
    relay.refuse()
    assert calls[1].still()
    store.multi_set(["a", "b"], ["1", "2"])
    relay.heal()
    assert [call.result() for call in calls] == [b"1", True]


@pytest.mark.parametrize("how", [Relay.pause, Relay.deafen])
def test_a_connection_that_says_nothing_counts_as_broken(
    store: TCPStore, far: TCPStore, relay: Relay, how: Callable[[Relay], None]
) -> None:
    """As one to a machine that is gone: nothing is reset, and nothing comes."""
    call = Blocked(lambda: far.get("a"))
    assert call.still()
    how(relay)
    far.set_timeout(1)
    with pytest.raises(StoreError, match=rf"{HOST}:{relay.port} cannot be reached: no "):
        far.add("n", 1)
    far.set_timeout(PATIENCE)
    relay.heal()
    store.set("a", "x")
    assert call.result() == b"x"
    assert far.add("n", 1) in (1, 2)  # the one that failed may have been done, but not twice


@pytest.mark.parametrize("how", [Relay.pause, Relay.deafen])
def test_silence_is_noticed_long_before_the_time_of_a_call(
    relay: Relay, how: Callable[[Relay], None]
) -> None:
    connection = Connection(HOST, relay.port, secret=b"", client=new_id(), timeout=PATIENCE)
    how(relay)
    with pytest.raises(Broken, match=r"no word from the server for 0\.3 s"):
        connection.ask(Request(1, Op.PEEK, (b"a",)), deadline=time.monotonic() + PATIENCE, heartbeat=0.1)
    connection.close()


def test_a_long_wait_keeps_its_connection(server: TCPStoreServer) -> None:
    """The server is asked for a sign of life, and gives it."""
    with TCPStore(HOST, server.port, heartbeat=1) as store:
        connected = server._next_id
        assert not store.wait_change("a", None, 3.5)  # silence for three times that would be a loss
        assert server._next_id == connected


def test_a_server_that_starts_anew_is_seen_to_be_another(server: TCPStoreServer, store: TCPStore) -> None:
    store.set("a", "1")
    assert store.instance == server.instance
    server.close()
    with TCPStoreServer(HOST, server.port) as second:
        assert store.peek("a") is None
        assert store.instance == second.instance != server.instance


def test_a_server_that_is_gone_is_named_with_the_reason(server: TCPStoreServer, store: TCPStore) -> None:
    server.close()
    store.set_timeout(0.3)
    calls: list[Callable[[], object]] = [
        lambda: store.set("a", ""),
        lambda: store.get("a"),
        lambda: store.wait_change("a", None),
        store.num_keys,
    ]
    for call in calls:
        with pytest.raises(
            StoreError, match=rf"{HOST}:{server.port} .*(refused|closed|reset).*[01]\.3 s"
        ) as caught:
            call()
        assert not isinstance(caught.value, StoreTimeoutError)


def test_a_client_waits_for_its_server() -> None:
    port = free_port()
    call = Blocked(lambda: TCPStore(HOST, port, timeout=PATIENCE))
    assert call.still()
    with TCPStoreServer(HOST, port), call.result() as store:
        assert store.num_keys() == 0


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x00\x00\x00\x05\x07hello"])
def test_what_is_no_store_is_said_to_be_none(words: bytes) -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        call = Blocked(lambda: TCPStore(HOST, port, timeout=0.3))
        listener.settimeout(0.1)
        taken = []
        while call.still(0):
            with contextlib.suppress(TimeoutError, ConnectionError):  # it may have given up already
                taken.append(listener.accept()[0])
                taken[-1].sendall(words)
        for connection in taken:
            connection.close()
    error = call.result()
    assert isinstance(error, StoreError)
    assert f"{HOST}:{port} cannot be reached" in str(error)


# -- closing ----------------------------------------------------------------------------------------


def test_close_ends_blocked_calls(store: TCPStore) -> None:
    calls = [Blocked(lambda: store.get("a")), Blocked(lambda: store.wait_change("b", None))]
    assert calls[1].still()
    store.close()
    for call in calls:
        assert "is closed" in str(call.result())
    with pytest.raises(StoreError, match="is closed"):
        store.set("a", "")
    store.close()


def test_the_master_serves_on_until_the_others_have_closed() -> None:
    master = TCPStore(HOST, 0, is_master=True, linger=PATIENCE)
    other = TCPStore(HOST, master.port, timeout=PATIENCE)
    master.set("last", "word")
    closing = Blocked(master.close)
    assert closing.still()
    assert other.get("last") == b"word"
    with ThreadPoolExecutor(3) as pool:  # new connections too
        assert list(pool.map(other.get, ["last"] * 3)) == [b"word"] * 3
    assert closing.still()
    other.close()
    assert closing.result() is None
    master.close()


def test_the_master_does_not_wait_for_ever() -> None:
    with TCPStore(HOST, free_port(), is_master=True, linger=0.1) as master:
        other = TCPStore(HOST, master.port, timeout=PATIENCE)
        call = Blocked(lambda: other.get("a", 3))
        assert call.still()
        master.close()
        assert "cannot be reached" in str(call.result())
        other.close()


def test_the_master_waits_for_its_workers() -> None:
    port = free_port()
    call = Blocked(lambda: TCPStore(HOST, port, 3, True, PATIENCE))
    others = [TCPStore(HOST, port, 3, timeout=PATIENCE)]
    assert call.still()
    others.append(TCPStore(HOST, port, 3, timeout=PATIENCE))
    with call.result():
        for other in others:
            other.close()
    with pytest.raises(
        StoreTimeoutError, match=r"1 of 2 workers have connected to 127.0.0.1:\d+ within 0\.1 s"
    ):
        TCPStore(HOST, 0, 2, True, timeout=0.1)
    with TCPStore(HOST, 0, 2, True, timeout=PATIENCE, wait_for_workers=False, linger=0):
        pass


def test_nothing_is_left_of_stores_that_are_closed() -> None:
    def left() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    before = left()
    for _ in range(3):
        with TCPStore(HOST, 0, is_master=True) as master, TCPStore(HOST, master.port) as other:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda n, s=other: s.wait_change("a", None, 0.01), range(8)))
            with pytest.raises(StoreTimeoutError):
                other.get("a", 0.01)
    assert all(now <= then for now, then in zip(left(), before, strict=True)), "what was there may have ended"


def test_a_failed_start_leaves_nothing(server: TCPStoreServer) -> None:
    threads = threading.active_count()
    with pytest.raises(StoreError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: .*in use"):
        TCPStore(HOST, server.port, is_master=True)
    with pytest.raises(StoreError, match=r"cannot listen on no-such-host\.invalid:5"):
        TCPStoreServer("no-such-host.invalid", 5)
    with pytest.raises(StoreError, match=r"cannot listen on 192\.0\.2\.1:0"):
        TCPStoreServer("192.0.2.1")
    assert threading.active_count() <= threads


# -- addresses and secrets --------------------------------------------------------------------------


def test_the_server_listens_where_it_is_told_and_nowhere_else() -> None:
    with TCPStore("localhost", free_port(), is_master=True, listen_on="127.0.0.2", linger=0) as store:
        socket.create_connection(("127.0.0.2", store.port)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", store.port))


def test_a_server_may_listen_on_two_addresses_and_on_no_third() -> None:
    with TCPStoreServer("127.0.0.1", also_on="127.0.0.2") as server:
        for host in ("127.0.0.1", "127.0.0.2"):
            with TCPStore(host, server.port, timeout=20) as store:
                store.append("from", host[-1])
        with TCPStore("127.0.0.1", server.port, timeout=20) as store:
            assert store.get("from") == b"12"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.3", server.port))
        with pytest.raises(StoreError, match=r"cannot listen on 127\.0\.0\.2"):
            TCPStoreServer("127.0.0.3", server.port, also_on="127.0.0.2")
        port = server.port
    TCPStoreServer("127.0.0.3", port, also_on="127.0.0.2").close()


def test_ipv6_addresses_are_taken_and_written_in_brackets() -> None:
    with TCPStore("::1", 0, is_master=True, linger=0) as master, TCPStore("::1", master.port) as other:
        master.set("a", "1")
        assert other.get("a") == b"1"
        master.close()
        other.set_timeout(0.1)
        with pytest.raises(StoreError, match=rf"\[::1\]:{master.port}"):
            other.get("a")


def test_who_does_not_know_the_secret_stays_outside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "secret"
    file.write_text("open sesame\n")
    with TCPStore(HOST, 0, is_master=True, secret="open sesame", linger=0) as master:
        for wrong in ("open sesam", None):
            with pytest.raises(
                StoreDeniedError, match=rf"{HOST}:{master.port}: the client has another secret"
            ):
                TCPStore(HOST, master.port, secret=wrong, timeout=PATIENCE)
        with TCPStore(HOST, master.port, secret_file=file, timeout=PATIENCE) as other:
            other.set("a", "1")
            assert "sesame" not in repr(other)
    assert "sesame" not in caplog.text


def test_a_server_that_does_not_know_the_secret_is_not_trusted(server: TCPStoreServer) -> None:
    with pytest.raises(StoreDeniedError, match="the client has another secret"):
        TCPStore(HOST, server.port, secret="s", timeout=PATIENCE)


# -- many at once -----------------------------------------------------------------------------------


def test_answers_go_to_who_asked(store: TCPStore) -> None:
    def work(number: int) -> bool:
        key = f"k{number % 7}"
        return all(
            store.compare_set(f"own{number}-{n}", "", f"{number}/{n}") == b"%d/%d" % (number, n)
            and store.add(key, 1) > 0
            and store.get(f"own{number}-{n}") == b"%d/%d" % (number, n)
            and not store.wait_change(f"own{number}-{n}", b"%d/%d" % (number, n), 0)
            for n in range(10)
        )

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(32)))
    assert sum(map(int, store.multi_get([f"k{n}" for n in range(7)]))) == 320


def test_a_large_value_goes_through_and_a_larger_one_is_refused_in_words(store: TCPStore) -> None:
    value = os.urandom(3_000_000)
    store.set("a", value)
    assert store.get("a") == value
    with pytest.raises(StoreError, match=r"key 'b' has 9000000 bytes; at most 8388608"):
        store.set("b", b"x" * 9_000_000)
    with pytest.raises(StoreError, match=r"request of 17000047 bytes.*takes 16777216"):
        store.set("b", b"x" * 17_000_000)
    assert store.get("a") == value


def test_a_server_that_is_full_says_so() -> None:
    with TCPStoreServer(HOST, limits=Limits(connections=2)) as server, contextlib.ExitStack() as owned:
        for _ in range(2):
            owned.enter_context(TCPStore(HOST, server.port))
        with pytest.raises(StoreError, match="has 2 connections, and takes no more"):
            TCPStore(HOST, server.port, timeout=2)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(store: TCPStore) -> None:
    store.add("n", 1)
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            status = 0 if all(store.add("n", 1) for _ in range(50)) else 2
        os._exit(status)
    for _ in range(50):
        store.add("n", 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("n") == b"101"


def test_waiting_costs_the_server_nothing(server: TCPStoreServer, store: TCPStore) -> None:
    calls = [Blocked(lambda: store.wait_change("a", None)) for _ in range(20)]
    assert calls[-1].still(0.2)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.25
    store.set("a", "")
    assert all(call.result() is True for call in calls)
