"""After an outage of the backend nobody is lost at once: not all nodes get through to it at the same time."""

from __future__ import annotations

from support.strategies import node, world_of

from elastic.rendezvous.core.actions import Commit, FollowNodes, HoldLease, Put, Rest
from elastic.rendezvous.core.protocol import Protocol
from elastic.rendezvous.core.records import Leader, Record, Round
from elastic.rendezvous.core.rules import Rules
from elastic.rendezvous.core.view import LEADER, NODES, ROUND, Fact, Seen

RULES = Rules(min_nodes=1, max_nodes=2, rejoin_grace=1.0, return_grace=5.0)


def fact(key: str, record: Record, revision: int) -> Fact:
    return Fact(key, revision, Seen(record, revision, revision))


def leading() -> Protocol:
    """Node a runs the world of a and b, and leads; b's record is not there."""
    protocol = Protocol(node("a"), RULES)
    protocol.join()
    assert isinstance(protocol.next_action(0.0), HoldLease)
    protocol.lease_held()
    protocol.learn([fact(LEADER, Leader(node_id="a"), 5), fact(ROUND, world_of("a", "b"), 6)])
    assert protocol.world is not None
    protocol.run(protocol.world)
    active = protocol.next_action(0.0)
    assert isinstance(active, Commit)
    [put] = active.operations
    assert isinstance(put, Put)
    protocol.learn([fact(put.key, put.record, 10)])
    protocol.committed(active)
    assert isinstance(protocol.next_action(0.0), FollowNodes)
    own = {key: seen for key, seen in protocol.view.entries.items() if key.startswith(NODES)}
    protocol.followed(10, own)
    return protocol


def lost_at(protocol: Protocol, first: float, last: float) -> float:
    """When, looking ten times a second, the leader opens a round without b."""
    for tenth in range(int(first * 10), int(last * 10)):
        action = protocol.next_action(tenth / 10)
        if isinstance(action, Commit):
            [put] = action.operations
            assert isinstance(put, Put)
            assert isinstance(put.record, Round)
            assert "b was lost" in put.record.cause
            return tenth / 10
        assert isinstance(action, Rest)
        assert action.until is not None, "nothing else would wake it"
        assert action.until > tenth / 10
    raise AssertionError(f"not lost before {last}")


def test_without_an_outage_a_member_is_lost_after_the_grace() -> None:
    assert lost_at(leading(), 100, 120) == 101.0


def test_after_an_outage_it_has_longer() -> None:
    protocol = leading()
    protocol.backend_away(100.0)
    assert lost_at(protocol, 100, 120) == 106.0


def test_also_where_it_was_missed_before() -> None:
    protocol = leading()
    assert isinstance(protocol.next_action(99.5), Rest)
    protocol.backend_away(100.0)
    assert lost_at(protocol, 100, 120) == 106.0


def test_an_outage_of_long_ago_changes_nothing() -> None:
    protocol = leading()
    protocol.backend_away(100.0)
    assert lost_at(protocol, 150, 160) == 151.0
