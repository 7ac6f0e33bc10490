"""The backend on etcd carries out what the protocol asks: transactions, reads, the lease, the news."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.etcd import EtcdServer
from support.nodes import PATIENCE, records

from elastic.etcd import Client
from elastic.rendezvous import RendezvousSettings
from elastic.rendezvous.backends.api import (
    BackendUnavailable,
    Learned,
    LeaseEnded,
    LeaseGone,
    News,
    Unreadable,
)
from elastic.rendezvous.backends.etcd_membership import EtcdMembership
from elastic.rendezvous.core.actions import Absent, Commit, Delete, Guard, Keep, Put, SameCreation, Unchanged
from elastic.rendezvous.core.records import Leader, Node, Outcome, Phase, Round, Terminal, Want
from elastic.rendezvous.core.view import Fact

ROUND = Round(incarnation=1, round=1, phase=Phase.OPEN, min_nodes=1, max_nodes=2)
NODE = Node(
    node_id="me",
    want=Want.JOINING,
    round=1,
    name="me",
    address="a",
    hostname="h",
    pid=1,
    local_world_size=1,
    role="r",
    master_port=1,
)
REGISTER = Put("nodes/me", NODE, Keep.NODE)
CLAIM = Put("leader", Leader(node_id="me"), Keep.NODE)


class Inbox:
    def __init__(self) -> None:
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()

    def put(self, item: News, /) -> None:
        self._news.put(item)

    def next(self) -> News:
        return self._news.get(timeout=PATIENCE)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def backend(etcd: EtcdServer, run_id: str, inbox: Inbox) -> Iterator[EtcdMembership]:
    settings = RendezvousSettings(run_id=run_id, min_nodes=1, max_nodes=2)
    client = Client([etcd.endpoint])
    backend = EtcdMembership(client, prefix=f"/elastic/{run_id}/", node_id="me", settings=settings)
    backend.start(inbox)
    yield backend
    backend.close()


def commit(*guards: Guard, do: list[Put | Delete], claim: Put | None = None) -> Commit:
    return Commit(step="test", why="a test", guards=guards, operations=tuple(do), claim=claim)


def learned(inbox: Inbox) -> Fact:
    news = inbox.next()
    assert isinstance(news, Learned), news
    (fact,) = news.facts
    return fact


def test_a_commit_is_done_where_its_guards_hold(backend: EtcdMembership, inbox: Inbox) -> None:
    result = backend.commit(commit(Absent("round"), do=[Put("round", ROUND, Keep.RETENTION)]))
    assert result.succeeded
    (fact,) = result.facts
    assert fact.seen is not None
    assert (fact.key, fact.seen.record, fact.seen.create_revision) == ("round", ROUND, fact.revision)
    assert learned(inbox) == fact, "the watch tells the same"
    seen = backend.read(nodes=False).found["round"]
    assert seen == fact.seen

    later = replace(ROUND, round=2)
    guards = Unchanged("round", seen.mod_revision), SameCreation("round", seen.create_revision)
    assert backend.commit(commit(*guards, do=[Put("round", later, Keep.RETENTION)])).succeeded
    assert not backend.commit(commit(*guards, do=[Put("round", ROUND, Keep.RETENTION)])).succeeded
    assert backend.read(nodes=False).found["round"].record == later


def test_a_commit_whose_guards_do_not_hold_does_nothing(backend: EtcdMembership) -> None:
    put = Put("round", ROUND, Keep.RETENTION)
    assert backend.commit(commit(do=[put])).succeeded
    before = backend.survey()
    assert not backend.commit(commit(Absent("round"), do=[Delete("round")], claim=None)).succeeded
    assert not backend.commit(commit(SameCreation("leader", 1), do=[Delete("round")])).succeeded
    assert backend.survey() == before


@pytest.mark.parametrize("there", [False, True])
def test_a_claim_is_made_where_nobody_else_has(backend: EtcdMembership, client: Client, there: bool) -> None:
    backend.hold_lease()
    if there:
        other = Put("leader", Leader(node_id="other"), Keep.RETENTION)
        assert backend.commit(commit(do=[other])).succeeded
    result = backend.commit(commit(Absent("nodes/me"), do=[REGISTER], claim=CLAIM))
    assert result.succeeded, "a claim that fails is no failure"
    facts = {fact.key: fact.seen for fact in result.facts}
    assert facts["leader"] is not None
    assert facts["leader"].record == Leader(node_id="other" if there else "me")
    assert facts == {key: backend.survey().found[key] for key in facts}


def test_a_claim_that_meets_garbage_is_no_failure(
    backend: EtcdMembership, client: Client, run_id: str
) -> None:
    backend.hold_lease()
    client.put(f"/elastic/{run_id}/leader".encode(), b"garbage")
    result = backend.commit(commit(do=[REGISTER], claim=CLAIM))
    assert result.succeeded
    assert [fact.key for fact in result.facts] == ["nodes/me"]


def test_garbage_is_news_of_its_own_and_keeps_nothing_else_back(
    backend: EtcdMembership, client: Client, run_id: str, inbox: Inbox
) -> None:
    client.put(f"/elastic/{run_id}/round".encode(), b"garbage")
    news = inbox.next()
    assert isinstance(news, Unreadable)
    assert news.key == "round"
    assert "'round'" in str(news.error)
    backend.commit(commit(do=[Put("leader", Leader(node_id="x"), Keep.RETENTION)]))
    assert learned(inbox).key == "leader"
    reading = backend.survey()
    assert list(reading.unreadable) == ["round"]
    assert list(reading.found) == ["leader"]


def test_only_a_follower_of_the_nodes_hears_of_other_nodes(
    backend: EtcdMembership, client: Client, run_id: str, inbox: Inbox
) -> None:
    other = replace(NODE, node_id="other")
    put = commit(do=[Put("nodes/other", other, Keep.RETENTION)])
    backend.commit(put)
    backend.commit(commit(do=[Put("round", ROUND, Keep.RETENTION)]))
    assert learned(inbox).key == "round"
    assert "nodes/other" not in backend.read(nodes=False).found

    assert [seen.record for seen in backend.follow_nodes().found.values()] == [other]
    backend.commit(put)
    assert learned(inbox).key == "nodes/other"
    backend.unfollow_nodes()
    backend.commit(put)
    backend.commit(commit(do=[Delete("round")]))
    fact = learned(inbox)
    assert (fact.key, fact.seen) == ("round", None)


def test_what_a_node_writes_goes_with_its_lease(
    backend: EtcdMembership, client: Client, run_id: str, inbox: Inbox
) -> None:
    with pytest.raises(LeaseGone):
        backend.commit(commit(do=[REGISTER]))
    backend.hold_lease()
    assert backend.lease_lives()
    assert backend.commit(commit(do=[REGISTER, Put("round", ROUND, Keep.RETENTION)])).succeeded
    backend.drop_lease()
    assert not backend.lease_lives()
    assert set(records(client, run_id)) == {"round"}
    backend.drop_lease()


def test_a_revoked_lease_is_news_and_refuses_commits(
    backend: EtcdMembership, client: Client, run_id: str, inbox: Inbox
) -> None:
    backend.hold_lease()
    backend.commit(commit(do=[REGISTER]))
    kv = client.get(f"/elastic/{run_id}/nodes/me".encode())
    assert kv is not None
    client.lease_revoke(kv.lease)
    assert not backend.lease_lives()
    with pytest.raises(LeaseGone):
        backend.commit(commit(do=[REGISTER]))
    while not isinstance(inbox.next(), LeaseEnded):
        pass
    backend.hold_lease()
    assert backend.commit(commit(do=[REGISTER])).succeeded


def test_each_kind_of_record_has_the_lease_of_its_kind(
    backend: EtcdMembership, client: Client, run_id: str
) -> None:
    backend.hold_lease()
    terminal = Terminal(outcome=Outcome.CLOSED, reason="", exit_code=0, incarnation=1, round=1, node_id="me")
    put = commit(
        do=[
            REGISTER,
            Put("round", ROUND, Keep.RETENTION),
            Put("history/00000001", ROUND, Keep.RETENTION),
            Put("closed", terminal, Keep.TERMINAL),
        ]
    )
    assert backend.commit(put).succeeded
    prefix = f"/elastic/{run_id}/"
    leases = {kv.key.decode()[len(prefix) :]: kv.lease for kv in client.get_prefix(prefix.encode()).kvs}
    granted = {key: client.lease_time_to_live(lease).granted for key, lease in leases.items()}
    assert granted == {"nodes/me": 10, "round": 604800, "history/00000001": 604800, "closed": 86400}
    assert leases["round"] == leases["history/00000001"]


def test_a_server_that_is_gone_is_unavailable(
    etcd_server: Callable[..., EtcdServer], run_id: str, inbox: Inbox
) -> None:
    server = etcd_server()
    settings = RendezvousSettings(run_id=run_id, min_nodes=1, max_nodes=2)
    client = Client([server.endpoint], timeout=0.5)
    backend = EtcdMembership(client, prefix=f"/elastic/{run_id}/", node_id="me", settings=settings)
    backend.start(inbox)
    server.kill()
    try:
        calls: list[Callable[[], object]] = [
            lambda: backend.read(nodes=True),
            backend.survey,
            backend.follow_nodes,
            lambda: backend.commit(commit(do=[Put("round", ROUND, Keep.RETENTION)])),
            backend.hold_lease,
        ]
        for call in calls:
            with pytest.raises(BackendUnavailable, match=server.endpoint):
                call()
    finally:
        backend.close()
