"""The static backend's settings, and the order of a world whose nodes have ranks of their own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from elastic.rendezvous import Member, RendezvousParameters, RendezvousStateError, StaticTCPRendezvous
from elastic.rendezvous.static.composition import configured, place_of
from elastic.rendezvous.static.meeting import listening_host
from elastic.rendezvous.static.ranks import in_order, node_name


def parameters(endpoint: str, nodes: int = 2, **conf: Any) -> RendezvousParameters:
    return RendezvousParameters("static", endpoint, "r", conf.pop("least", nodes), nodes, **conf)


def member(name: str) -> Member:
    return Member(node_id=name, name=name, address="a", hostname="h", local_world_size=1, role="default_role")


@pytest.mark.parametrize(
    ("endpoint", "nodes", "expected"),
    [
        ("node0:29501", 2, ("node0", 29501, None)),
        ("node0", 2, ("node0", 29500, 0)),
        ("::1", 2, ("::1", 29500, 0)),
        ("[::1]:7", 2, ("::1", 7, None)),
        ("node0", 1, ("node0", 0, 0)),
        ("", 1, ("127.0.0.1", 0, 0)),
    ],
)
def test_a_port_in_the_endpoint_is_the_workers_and_none_leaves_them_a_free_one(
    endpoint: str, nodes: int, expected: tuple[str, int, int | None]
) -> None:
    assert place_of(parameters(endpoint, nodes)) == expected


@pytest.mark.parametrize(
    ("endpoint", "conf", "words"),
    [
        ("a", {"least": 1}, "1:2 nodes are a range"),
        ("a", {"rank": 2}, "rank 2 is outside a world of 2 nodes"),
        ("a", {"rank": "first"}, "rank='first' is not a whole number"),
        ("a", {"tlt": 3}, "did you mean 'ttl'"),
        ("a", {"retention": 3}, "is for the backend etcd"),
        ("a,b", {}, "names several hosts"),
        ("", {}, "--master-addr"),
        ("a", {"timeout": 0}, "join timeout"),
        ("a", {"secret_file": "/no/such/file"}, "/no/such/file"),
    ],
)
def test_wrong_settings_are_one_sentence(endpoint: str, conf: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        configured(parameters(endpoint, **conf), {})
    assert "\n" not in str(caught.value)


def test_nothing_is_opened_before_the_first_rendezvous(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    handler = configured(
        parameters("no-such-host.invalid", rank=1, timeout=5, secret_file=str(secret)),
        {"ELASTIC_STORE_SECRET": "x"},
    )
    assert (handler.get_backend(), handler.get_run_id()) == ("static", "r")
    assert not handler.is_closed()
    assert handler.num_nodes_waiting() == 0
    assert not handler.report_success()
    assert handler.shutdown()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", 29500, 2, 2, "r"), "rank 2"),
        (("a", 0, 0, 1, "r"), "master_port 0"),
        (("a", 65536, 0, 1, "r"), "master_port 65536"),
        (("a", 29500, 0, 1, ""), "run id"),
        (("a", 29500, 0, 1, "r", -1.0), "join timeout"),
    ],
)
def test_torchs_positions_are_checked(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StaticTCPRendezvous(*arguments)
    assert StaticTCPRendezvous("a", 29500, 0, 1, "r", timedelta(seconds=1)).shutdown()


@pytest.mark.parametrize(
    ("host", "address", "local_addr", "expected"),
    [
        ("node0", "127.0.1.1", "10.0.0.1", "10.0.0.1"),
        ("node0", "127.0.1.1", None, "node0"),
        ("node0", "10.0.0.2", "10.0.0.1", "node0"),
        ("localhost", "127.0.0.1", "10.0.0.1", "localhost"),
        ("127.0.0.1", "127.0.0.1", "10.0.0.1", "127.0.0.1"),
        ("node0", "::1", "fd00::1", "fd00::1"),
    ],
)
def test_a_machine_that_knows_itself_by_the_loopback_listens_where_it_is_told(
    host: str, address: str, local_addr: str | None, expected: str
) -> None:
    assert listening_host(host, address, local_addr) == expected


def test_members_come_in_the_order_of_their_ranks() -> None:
    world = [member(node_name(rank, "host")) for rank in (2, 10, 0)]
    assert [m.name for m in in_order(world)] == ["rank0@host", "rank2@host", "rank10@host"]


def test_one_rank_for_two_nodes_is_refused_by_both_names() -> None:
    with pytest.raises(RendezvousStateError, match="rank1@a and rank1@b were started with the same"):
        in_order([member("rank1@b"), member("rank0@a"), member("rank1@a")])
    with pytest.raises(RendezvousStateError, match="'other' is no node"):
        in_order([member("other")])
