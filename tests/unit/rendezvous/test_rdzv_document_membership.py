"""A run in one document: what becomes of it when its store is away, loses its data, or holds garbage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.etcd import wait_until
from support.memory_store import Memory, MemoryStore
from support.places import Node, StoreSite
from support.strategies import node as record_of
from support.strategies import world_of

from elastic.rendezvous import (
    RendezvousBackend,
    RendezvousConnectionError,
    RendezvousSettings,
    RendezvousStateError,
    Token,
    TpRendezvousBackend,
)
from elastic.rendezvous.backends.api import (
    BackendUnavailable,
    BackendWiped,
    Interrupted,
    Learned,
    LeaseEnded,
    LeaseGone,
    Missed,
    Resumed,
)
from elastic.rendezvous.backends.document.membership import DocumentMembership
from elastic.rendezvous.core.actions import Absent, Commit, Keep, Put
from elastic.rendezvous.core.view import ROUND, node_key


class MemorySite(StoreSite):
    """A run in this process's memory; `stores` are those of its nodes, in order."""

    def __init__(self) -> None:
        self.memory = Memory()
        super().__init__(lambda: MemoryStore(self.memory))
        self.set_ttl(2)

    @property
    def key(self) -> str:
        return f"elastic.rendezvous.{self.run_id}"

    def cut(self, *numbers: int, cut: bool = True) -> None:
        for number in numbers:
            store = self.stores[number]
            assert isinstance(store, MemoryStore)
            store.cut = cut


@pytest.fixture
def site() -> Iterator[MemorySite]:
    made = MemorySite()
    yield made
    made.close()


def register(node: Node) -> bool:
    put = Put(node_key(node.id), record_of(node.id), Keep.NODE)
    return node.backend.commit(Commit(step="joining", why="", guards=(), operations=(put,))).succeeded


# -- away --------------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_unavailable_and_said_once(site: MemorySite) -> None:
    a = site.node()
    site.cut(0)
    assert "cut off" in a.inbox.find(Interrupted).reason
    for call in (
        lambda: a.backend.read(nodes=True),
        a.backend.survey,
        a.backend.hold_lease,
        a.backend.lease_lives,
    ):
        with pytest.raises(BackendUnavailable, match="cut off"):
            call()
    assert a.backend.drop_lease() is False
    site.cut(0, cut=False)
    a.inbox.find(Resumed)
    assert a.inbox.count(Interrupted) == a.inbox.count(Resumed) == 1


def test_who_was_cut_off_for_longer_than_its_lease_hears_that_it_has_ended(site: MemorySite) -> None:
    a, b = site.node(), site.node()
    register(a)
    b.backend.follow_nodes()
    site.cut(0)
    while all(fact.seen is not None for fact in b.inbox.find(Learned).facts):
        pass
    assert b.backend.survey().found == {}
    site.cut(0, cut=False)
    assert "silent" in a.inbox.find(LeaseEnded).reason
    assert not a.backend.lease_lives()
    with pytest.raises(LeaseGone):
        register(a)
    a.backend.hold_lease()
    assert register(a)
    assert b.inbox.count(LeaseEnded) == 0


def test_an_outage_for_everybody_ends_nobodys_lease(site: MemorySite) -> None:
    """Each was silent for longer than a lease lasts, and nobody could see that the others were."""
    nodes = [site.node() for _ in range(3)]
    assert all(register(node) for node in nodes)
    site.cut(0, 1, 2)
    time.sleep(site.settings.ttl.total_seconds() + 0.5)
    site.cut(0, 1, 2, cut=False)
    for node in nodes:
        node.inbox.find(Resumed)
    time.sleep(1.0)  # a mistake would need a moment to show
    assert [node.inbox.count(LeaseEnded) for node in nodes] == [0, 0, 0]
    assert set(nodes[0].backend.survey().found) == {node_key(node.id) for node in nodes}


def test_the_last_one_that_lives_ends_the_leases_of_many(site: MemorySite) -> None:
    nodes = [site.node() for _ in range(4)]
    assert all(register(node) for node in nodes)
    site.cut(0, 1, 2)
    wait_until(lambda: set(nodes[3].backend.survey().found) == {node_key(nodes[3].id)}, what="one is left")


# -- lost data ---------------------------------------------------------------------------------------


def test_lost_data_is_told_to_whoever_knew_them(site: MemorySite) -> None:
    a, b = site.node(), site.node()
    assert register(a)
    site.memory.wipe()
    assert a.inbox.find(Missed).wiped
    assert b.inbox.find(Missed).wiped
    for node in (a, b):
        with pytest.raises(BackendWiped, match="lost"):
            node.backend.read(nodes=False)
        assert node_key(node.id) not in node.backend.read(nodes=True).found, "once told, it goes on"
        node.backend.hold_lease()
        assert register(node)
    assert set(a.backend.survey().found) == {node_key(a.id), node_key(b.id)}
    assert a.inbox.count(LeaseEnded) == 0, "that is said already"


def test_an_older_copy_is_lost_data(site: MemorySite) -> None:
    a = site.node()
    older = site.memory.values[site.key]
    assert register(a)
    a.inbox.find(Learned)
    site.stores[0].set(site.key, older)
    assert a.inbox.find(Missed).wiped
    with pytest.raises(BackendWiped):
        register(a)


def test_a_commit_that_meets_other_data_does_not_go_into_them(site: MemorySite) -> None:
    a = site.node()
    site.memory.wipe()
    put = Put(ROUND, world_of("n0"), Keep.RETENTION)
    with pytest.raises(BackendWiped):
        a.backend.commit(Commit(step="open", why="", guards=(Absent(ROUND),), operations=(put,)))
    assert a.backend.read(nodes=False).found == {}


# -- garbage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"\x80\x04\x95", b"{}"])
def test_who_comes_to_garbage_is_told_the_key(site: MemorySite, garbage: bytes) -> None:
    site.memory.values[site.key] = garbage
    backend = site.backend("n0")
    node = Node("n0", backend)
    site.nodes.append(node)
    assert isinstance(node.first.unreadable[ROUND], RendezvousStateError)
    assert site.key in str(node.first.unreadable[ROUND])
    assert site.memory.values[site.key] == garbage, "it is not ours to overwrite"
    site.memory.wipe()
    assert not node.inbox.find(Missed).wiped
    node.backend.hold_lease()
    assert register(node)


def test_garbage_stops_nobody_who_knows_better(site: MemorySite) -> None:
    a = site.node()
    assert register(a)
    whole = site.memory.values[site.key]
    site.stores[0].set(site.key, b"garbage")
    assert site.key in a.inbox.find(Interrupted).reason
    with pytest.raises(BackendUnavailable, match="delete it"):
        register(a)
    site.stores[0].set(site.key, whole)
    a.inbox.find(Resumed)
    assert register(a)


# -- backends of other people ------------------------------------------------------------------------


class Foreign(RendezvousBackend):
    """The documented interface and nothing more, with numbers as tokens."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.states: list[bytes] = []
        self.fails: Exception | None = None
        self.forgets = False

    @property
    def name(self) -> str:
        return "theirs"

    def get_state(self) -> tuple[bytes, Token] | None:
        if self.fails is not None:
            raise self.fails
        with self.lock:
            return (self.states[-1], len(self.states)) if self.states else None

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        if self.forgets:
            return None
        with self.lock:
            won = (token or 0) == len(self.states)
            if won:
                self.states.append(state)
            return self.states[-1], len(self.states), won


@pytest.fixture
def foreign() -> Iterator[tuple[Foreign, Callable[[str], Node]]]:
    state, nodes = Foreign(), list[Node]()
    settings = RendezvousSettings(run_id="job", min_nodes=1, max_nodes=2, ttl=timedelta(seconds=3))

    def make(node_id: str) -> Node:
        store = MemoryStore(Memory())
        nodes.append(Node(node_id, DocumentMembership(state, store, node_id=node_id, settings=settings)))
        nodes[-1].backend.hold_lease()
        return nodes[-1]

    yield state, make
    for node in nodes:
        node.backend.close()


def test_a_backend_of_the_documented_interface_is_enough(
    foreign: tuple[Foreign, Callable[[str], Node]],
) -> None:
    _, make = foreign
    a, b = make("a"), make("b")
    b.backend.follow_nodes()
    assert register(a)
    assert any(fact.key == node_key("a") for fact in b.inbox.find(Learned).facts)
    assert (a.backend.name, a.backend.place) == ("theirs", "the rendezvous state at 'theirs'")


def test_one_that_cannot_be_reached_is_away(foreign: tuple[Foreign, Callable[[str], Node]]) -> None:
    state, make = foreign
    a = make("a")
    state.fails = RendezvousConnectionError("gone fishing")
    assert a.inbox.find(Interrupted).reason == "gone fishing"
    with pytest.raises(BackendUnavailable, match="gone fishing"):
        a.backend.survey()
    state.fails = None
    a.inbox.find(Resumed)


def test_one_that_takes_no_first_state_is_away(foreign: tuple[Foreign, Callable[[str], Node]]) -> None:
    state, make = foreign
    state.forgets = True
    with pytest.raises(BackendUnavailable, match="the state at 'theirs' is not there, and cannot be made"):
        make("a")


def test_one_that_is_broken_is_said_to_be(foreign: tuple[Foreign, Callable[[str], Node]]) -> None:
    state, make = foreign
    a = make("a")
    state.fails = ZeroDivisionError("their mistake")
    assert "their mistake" in a.inbox.find(Missed).reason
    with pytest.raises(RuntimeError, match="'theirs' is broken") as caught:
        a.backend.read(nodes=False)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


# -- the state ---------------------------------------------------------------------------------------


@pytest.fixture
def state() -> TpRendezvousBackend:
    return TpRendezvousBackend(MemoryStore(Memory()), "job")


def test_a_state_is_set_once_and_then_by_its_token(state: TpRendezvousBackend) -> None:
    assert state.get_state() is None
    first = state.set_state(b"\x00one")
    assert first is not None
    assert (first[0], first[2]) == (b"\x00one", True)
    assert state.set_state(b"two") == (b"\x00one", first[1], False)
    second = state.set_state(b"two", first[1])
    assert second is not None
    assert (second[0], second[2]) == (b"two", True)
    assert state.set_state(b"three", first[1]) == (b"two", second[1], False)
    assert state.get_state() == (b"two", second[1])


@pytest.mark.parametrize("token", [b"other", 5, "text", object()])
def test_a_token_of_nothing_sets_nothing(state: TpRendezvousBackend, token: Any) -> None:
    assert state.set_state(b"one", token) is None
    state.set_state(b"one")
    assert state.set_state(b"two", token) == (b"one", b"one", False)


def test_a_wait_ends_with_the_change(state: TpRendezvousBackend) -> None:
    soon, long = timedelta(seconds=0.05), timedelta(seconds=30)
    assert not state.wait_state(None, soon)
    made = state.set_state(b"one")
    assert made is not None
    assert state.wait_state(None, long)
    assert not state.wait_state(made[1], soon)
    timer = threading.Timer(0.1, lambda: state.set_state(b"two", made[1]))
    timer.start()
    assert state.wait_state(made[1], long)
    timer.join()


def test_an_empty_state_and_an_empty_run_id_are_refused(state: TpRendezvousBackend) -> None:
    with pytest.raises(ValueError, match="at least one byte"):
        state.set_state(b"")
    with pytest.raises(ValueError, match="name the job"):
        TpRendezvousBackend(MemoryStore(Memory()), "")
    with pytest.raises(TypeError):
        TpRendezvousBackend("no store", "job")


def test_runs_on_one_store_have_states_of_their_own() -> None:
    memory = Memory()
    one, other = (TpRendezvousBackend(MemoryStore(memory), run) for run in ("one", "other"))
    one.set_state(b"x")
    assert other.get_state() is None
