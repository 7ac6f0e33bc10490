"""The backends over plain stores: what their settings mean, who runs the store, and what they say."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.addresses import others_way
from support.etcd import EtcdServer, free_port, wait_until

from elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousSettings,
    create_handler,
    get_registry,
)
from elastic.rendezvous.backends import hosting
from elastic.rendezvous.backends.fallback import fallback_of
from elastic.rendezvous.backends.hosting import Access, addresses_of, is_own, open_tcp
from elastic.rendezvous.backends.stores import connect, endpoint_of, stores_in_file
from elastic.rendezvous.settings import BELONGS, KEYS
from elastic.store import StoreError, TCPStore, TCPStoreServer
from elastic.utils.endpoints import Endpoint

NAMES = ("tcp", "p10d", "c10d")
NOBODY = "192.0.2.1:29400"  # an address that nobody has (RFC 5737)
ACCESS = Access(connect=5, call=5)


def parameters(
    backend: str, endpoint: str = "", *, low: int = 1, high: int = 1, **conf: Any
) -> RendezvousParameters:
    return RendezvousParameters(backend, endpoint, "job", low, high, **conf)


def refusal(call: Callable[[], object], kind: type[Exception] = ValueError) -> str:
    with pytest.raises(kind, match=r"\S") as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def endpoint() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def made() -> Iterator[Callable[..., RendezvousHandler]]:
    """Makes handlers, and shuts them down in the order of their making, the host last."""
    handlers: list[RendezvousHandler] = []

    def make(*arguments: Any, **conf: Any) -> RendezvousHandler:
        handlers.append(create_handler(parameters(*arguments, **conf)))
        return handlers[-1]

    yield make
    for handler in reversed(handlers):
        handler.shutdown()
    assert not [t.name for t in threading.enumerate() if "store" in t.name or "rendezvous" in t.name]


# -- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_goes_by_the_name_that_was_asked_for(
    made: Callable[..., RendezvousHandler], name: str
) -> None:
    assert name in get_registry().names()
    assert made(name).get_backend() == name


def test_a_file_is_a_backend(made: Callable[..., RendezvousHandler], tmp_path: Path) -> None:
    assert made("file", str(tmp_path / "store")).get_backend() == "file"
    assert made("p10d", str(tmp_path / "store"), store_type="file").get_backend() == "p10d"


# -- settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "file"])
@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_key_is_taken_by_the_backends_that_it_belongs_to(name: str, key: str) -> None:
    """Whether its value makes sense is another matter."""
    conf: dict[str, Any] = {key: "5"}
    params = parameters(name, **conf)
    if name in BELONGS.get(key, {name}):
        assert RendezvousSettings.from_params(params).run_id == "job"
    else:
        text = refusal(lambda: RendezvousSettings.from_params(params))
        assert f"{key!r} is for the backend" in text
        assert all(other in text for other in BELONGS[key])
        assert name in text


def test_an_alias_belongs_where_its_key_does() -> None:
    assert "'cacert' is for the backend etcd" in refusal(
        lambda: RendezvousSettings.from_params(parameters("p10d", cacert="/a"))
    )


@pytest.mark.parametrize(
    ("conf", "ttl", "heartbeat"),
    [
        ({}, 10, 10 / 3),
        ({"ttl": 6}, 6, 2),
        ({"keep_alive_interval": 2}, 6, 2),
        ({"keep_alive_interval": 2, "keep_alive_max_attempt": 5}, 10, 2),
        ({"keep_alive_max_attempt": 4}, 20, 5),
        ({"keep_alive_interval": 6, "keep_alive_max_attempt": 1}, 6, 2),
    ],
)
def test_the_keep_alive_pair_is_what_it_says(conf: dict[str, Any], ttl: float, heartbeat: float) -> None:
    found = RendezvousSettings.from_params(parameters("p10d", **conf))
    assert found.ttl == timedelta(seconds=ttl)
    assert found.heartbeat_seconds == pytest.approx(heartbeat)


def test_one_heartbeat_in_a_time_to_live_is_too_few() -> None:
    interval, ttl = timedelta(seconds=3), timedelta(seconds=5)
    text = refusal(
        lambda: RendezvousSettings(
            run_id="a", min_nodes=1, max_nodes=1, ttl=ttl, keep_alive_interval=interval
        )
    )
    assert "keep_alive_interval is 3 s and ttl 5 s" in text


@pytest.mark.parametrize(
    ("text", "high", "expected"),
    [
        ("", 1, "127.0.0.1:0"),
        ("localhost:0", 1, "localhost:0"),
        ("host", 2, "host:29400"),
        ("host:5", 2, "host:5"),
        ("[::1]:5", 2, "[::1]:5"),
    ],
)
def test_an_endpoint(text: str, high: int, expected: str) -> None:
    assert str(endpoint_of(parameters("p10d", text, high=high))) == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty endpoint"),
        ("host:0", "port"),
        ("host:99999", "99999"),
        ("host:abc", "abc"),
        ("a:1,b:2", "a:1,b:2"),
        ("https://host:1", "scheme"),
    ],
)
def test_an_endpoint_that_no_two_nodes_can_meet_at_is_refused(text: str, word: str) -> None:
    assert word in refusal(lambda: create_handler(parameters("p10d", text, high=2)))


def test_a_file_has_a_path_and_a_type_is_one_of_two() -> None:
    assert "path" in refusal(lambda: create_handler(parameters("file", "")))
    assert "neither tcp nor file" in refusal(lambda: stores_in_file(parameters("p10d", store_type="etcd")))
    assert not stores_in_file(parameters("p10d", store_type="tcp"))


# -- who runs the store ------------------------------------------------------------------------------


def test_who_has_the_address_runs_the_store_and_the_next_one_is_a_client(endpoint: str) -> None:
    host, _, port = endpoint.rpartition(":")
    first = open_tcp(Endpoint("etcd", host, int(port)), ACCESS, is_host=None)
    second = open_tcp(Endpoint("etcd", host, int(port)), ACCESS, is_host=None)
    first.store.set("key", "value")
    assert second.store.get("key") == b"value"
    assert first.place == second.place == f"the store at {endpoint}, which runs in the agent on that host,"
    assert (first.address, second.address) == (host, "")
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", int(port))):
        pass  # it listens on the one address alone
    second.release(0)
    first.release(5)


@pytest.mark.parametrize(("host", "master"), [("[::1]", "::1"), ("localhost", "127.0.0.1")])
def test_nodes_meet_at_an_address_of_any_kind(
    made: Callable[..., RendezvousHandler], host: str, master: str
) -> None:
    place = f"{host}:{free_port()}"
    nodes = [made("c10d", place, low=2, high=2, last_call_timeout=0, join_timeout=40) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        infos = list(pool.map(lambda node: node.next_rendezvous(), nodes))
    assert sorted(info.rank for info in infos) == [0, 1]
    assert {info.bootstrap_store_info.master_addr for info in infos} == {master}


def test_a_machine_that_knows_its_name_as_the_loopback_is_reached_by_others() -> None:
    outside = others_way()
    name = Endpoint("etcd", "127.1", free_port())  # is 127.0.0.1, and written otherwise, as a name is
    first, second = (open_tcp(name, ACCESS, is_host=None) for _ in range(2))
    assert first.address == second.address == outside
    for address in ("127.0.0.1", outside):
        with TCPStore(address, name.port, timeout=20) as visitor:
            visitor.append("visitors", "x")
    assert second.store.get("visitors") == b"xx"
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", name.port)):
        pass  # and nowhere else
    second.release(0)
    first.release(5)


@pytest.mark.parametrize(
    ("name", "local_addr"), [("localhost", None), ("127.0.0.1", None), ("127.1", "127.0.0.2")]
)
def test_what_means_the_loopback_stays_there(name: str, local_addr: str | None) -> None:
    store = open_tcp(Endpoint("etcd", name, free_port()), ACCESS, is_host=True, local_addr=local_addr)
    store.release(0)
    assert store.address == "127.0.0.1"


def test_a_name_that_nobody_knows_is_told() -> None:
    nowhere = Endpoint("etcd", "no.such.host.invalid", 29400)
    text = refusal(lambda: open_tcp(nowhere, Access(connect=0.3, call=1), is_host=None), StoreError)
    assert "the host 'no.such.host.invalid' is not known here" in text


def test_whether_an_address_is_of_this_machine_is_found_out_by_binding_it() -> None:
    assert is_own("127.0.0.1")
    assert is_own("127.0.0.2")
    assert not is_own("192.0.2.1")
    assert addresses_of(Endpoint("etcd", "localhost", 1))[0] == "127.0.0.1"
    assert "no.such.host.invalid" in refusal(
        lambda: addresses_of(Endpoint("etcd", "no.such.host.invalid", 1)), StoreError
    )


def test_who_is_no_host_runs_no_store(endpoint: str) -> None:
    text = refusal(
        lambda: create_handler(parameters("p10d", endpoint, is_host="no", connect_timeout=0.2)),
        RendezvousConnectionError,
    )
    place = f"the store at {endpoint}, which runs in the agent on that host,"
    assert f"{place} does not answer within 0.2 s (connect_timeout)" in text
    assert "is_host=0" in text


def test_who_waits_for_the_host_waits_as_long_as_for_a_world(endpoint: str) -> None:
    """The one who runs the store may be started last."""
    text = refusal(
        lambda: create_handler(parameters("p10d", endpoint, is_host="no", join_timeout=0.3)),
        RendezvousConnectionError,
    )
    assert "does not answer within 0.3 s (join_timeout)" in text


def test_a_host_that_starts_late_is_waited_for_and_that_is_said(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, _, port = endpoint.rpartition(":")
    place = Endpoint("etcd", host, int(port))
    patient = Access(connect=0.1, call=5, patience=60, progress=0.2)
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING, logger="elastic.rendezvous"):
        early = pool.submit(open_tcp, place, patient, is_host=False)
        wait_until(lambda: "waiting for it" in caplog.text, what="it says that it waits")
        late = open_tcp(place, ACCESS, is_host=None)
        client = early.result(timeout=60)
    client.store.set("key", "value")
    assert late.store.get("key") == b"value"
    assert f"the store at {endpoint}" in caplog.text
    assert "Connection refused): waiting for it" in caplog.text
    client.release(0)
    late.release(5)


def test_the_host_says_that_it_stays_only_where_others_are_there(
    endpoint: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = endpoint.rpartition(":")
    place = Endpoint("etcd", host, int(port))
    with caplog.at_level(logging.INFO, logger="elastic.rendezvous"):
        with monkeypatch.context() as patient:
            patient.setattr(hosting, "_GOODBYE_SECONDS", 60.0)  # as soon as its own connections are closed
            for _ in range(20):
                alone = open_tcp(place, ACCESS, is_host=True)
                alone.store.set("key", "value")
                alone.release(5)
        assert "stays" not in caplog.text
        first, second = (open_tcp(place, ACCESS, is_host=None) for _ in range(2))
        first.release(0.1)
        assert "stays for 0.1 s at most" in caplog.text
    second.release(0)


def test_a_host_that_cannot_be_one_says_so(endpoint: str) -> None:
    text = refusal(
        lambda: create_handler(parameters("p10d", NOBODY, is_host=True)), RendezvousConnectionError
    )
    assert "192.0.2.1 (192.0.2.1) is no address of this machine" in text
    assert "--local-addr" in text
    with TCPStoreServer("127.0.0.1") as server:
        taken = f"127.0.0.1:{server.port}"
        text = refusal(
            lambda: create_handler(parameters("p10d", taken, is_host=True)), RendezvousConnectionError
        )
        assert taken in text


def test_a_host_behind_a_translated_address_listens_on_its_own(
    made: Callable[..., RendezvousHandler],
) -> None:
    port = free_port()
    handler = made("tcp", f"192.0.2.1:{port}", is_host=True, local_addr="127.0.0.1")
    assert handler.get_backend() == "tcp"
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass


def test_a_port_that_something_else_has_is_no_store(endpoint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        text = refusal(
            lambda: create_handler(parameters("p10d", taken, connect_timeout=0.5)), RendezvousConnectionError
        )
        place = Endpoint("etcd", "127.0.0.1", other.getsockname()[1])
        hasty = Access(connect=0.3, call=5, patience=300)
        assert "within 0.3 s" in refusal(lambda: open_tcp(place, hasty, is_host=None), StoreError)
    assert f"the store at {taken}" in text
    assert "this agent cannot run it either" in text


# -- secrets -----------------------------------------------------------------------------------------


def test_nodes_need_the_same_secret(
    made: Callable[..., RendezvousHandler], endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame")
    made("tcp", endpoint, secret_file=str(secret))
    monkeypatch.setenv("ELASTIC_STORE_SECRET", "open sesame")
    made("tcp", endpoint)
    monkeypatch.setenv("ELASTIC_STORE_SECRET", "open barley")
    text = refusal(
        lambda: create_handler(parameters("tcp", endpoint, connect_timeout=1)), RendezvousConnectionError
    )
    assert "secret" in text
    assert "sesame" not in text
    assert "barley" not in text


# -- instead of etcd ---------------------------------------------------------------------------------


def falling(
    endpoint: str, low: int, high: int, *, etcd: str = "127.0.0.1:9", **conf: Any
) -> RendezvousParameters:
    conf = {"fallback": "p10d", "fallback_endpoint": endpoint, "connect_timeout": 0.3, **conf}
    return parameters("etcd", etcd, low=low, high=high, **conf)


def test_where_etcd_does_not_answer_the_fallback_is_used_and_said_loudly(
    endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="elastic.rendezvous"):
        handler = create_handler(falling(endpoint, 1, 1, ttl=6, retention=600, etcd_prefix="/x"))
    assert handler.get_backend() == "etcd", "the name that was asked for"
    assert f"goes on WITHOUT etcd, by p10d at {endpoint}" in caplog.text
    info = handler.next_rendezvous()
    assert (info.rank, info.world_size) == (0, 1)
    handler.shutdown()


def test_where_etcd_answers_it_is_used(
    etcd: EtcdServer, endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    handler = create_handler(falling(endpoint, 1, 1, etcd=etcd.endpoint, connect_timeout=20))
    handler.shutdown()
    assert "WITHOUT" not in caplog.text
    host, _, port = endpoint.rpartition(":")
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port))):
        pass


@pytest.mark.parametrize(("low", "high"), [(1, 2), (2, 4), (1, 64)])
def test_a_fallback_that_could_make_two_worlds_is_refused(endpoint: str, low: int, high: int) -> None:
    text = refusal(lambda: create_handler(falling(endpoint, low, high)))
    assert f"fallback=p10d is refused with --nnodes={low}:{high}" in text
    assert "two worlds" in text


@pytest.mark.parametrize(
    ("conf", "word"),
    [
        ({"fallback_endpoint": ""}, "fallback_endpoint is missing"),
        ({"fallback": ""}, "fallback is missing"),
        ({"fallback": "etcd"}, "fallback='etcd' is none of p10d, c10d, tcp"),
        ({"fallback_endpoint": "host:abc"}, "abc"),
    ],
)
def test_a_fallback_that_makes_no_sense_is_refused_even_where_etcd_answers(
    etcd: EtcdServer, endpoint: str, conf: dict[str, Any], word: str
) -> None:
    assert word in refusal(lambda: create_handler(falling(endpoint, 2, 3, etcd=etcd.endpoint, **conf)))


def test_the_time_that_etcd_has_is_not_the_one_of_an_agent_that_finds_out_later(endpoint: str) -> None:
    other = fallback_of(falling(endpoint, 2, 3, ttl=6))
    assert other is not None
    assert other.config == {"ttl": 6}


def test_without_a_fallback_there_is_none(endpoint: str) -> None:
    refusal(
        lambda: create_handler(parameters("etcd", "127.0.0.1:9", connect_timeout=0.3)),
        RendezvousConnectionError,
    )


def test_the_environment_is_a_parameter(endpoint: str) -> None:
    handler = connect(parameters("tcp", endpoint), {"ELASTIC_STORE_SECRET": "x"}, name="other")
    assert handler.get_backend() == "other"
    handler.shutdown()
