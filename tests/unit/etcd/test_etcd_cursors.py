"""Where a watch stands: resume revisions, pieces put together, errors told."""

from __future__ import annotations

import pytest

from elastic.etcd import Compacted, Unavailable, prefix
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.cursors import Cursors, Delivery
from elastic.etcd.errors import TokenExpired


def created(number: int, revision: int) -> pb.WatchResponse:
    return pb.WatchResponse(header=pb.ResponseHeader(revision=revision), watch_id=number, created=True)


def changed(number: int, *revisions: int, fragment: bool = False) -> pb.WatchResponse:
    events = [pb.Event(kv=pb.KeyValue(key=b"a/%d" % rev, mod_revision=rev)) for rev in revisions]
    return pb.WatchResponse(watch_id=number, events=events, fragment=fragment)


def starts(cursors: Cursors) -> list[int]:
    return [request.create_request.start_revision for request in cursors.restart()]


@pytest.fixture
def cursors() -> Cursors:
    return Cursors([prefix(b"a/"), prefix(b"b/")], start_revision=5)


def feed(cursors: Cursors, *responses: pb.WatchResponse) -> list[Delivery]:
    found = [cursors.feed(response, endpoint="h:1") for response in responses]
    return [delivery for delivery in found if delivery is not None]


def test_ids_count_from_one_and_each_range_resumes_where_it_stands(cursors: Cursors) -> None:
    requests = [request.create_request for request in cursors.restart()]
    assert [request.watch_id for request in requests] == [1, 2]
    assert not cursors.live
    feed(cursors, created(1, 9), created(2, 9), changed(2, 6, 7, 7))
    assert cursors.live
    assert starts(cursors) == [5, 8]
    assert not cursors.live


def test_from_now_is_pinned_when_it_is_created() -> None:
    cursors = Cursors([prefix(b"a/")], start_revision=0)
    assert starts(cursors) == [0]
    feed(cursors, created(1, 41))
    assert starts(cursors) == [42]


def test_pieces_are_delivered_whole_or_not_at_all(cursors: Cursors) -> None:
    assert feed(cursors, changed(1, 5, 6, fragment=True), changed(2, 9)) == feed(
        Cursors([prefix(b"a/"), prefix(b"b/")], start_revision=5), changed(2, 9)
    )
    [delivery] = feed(cursors, changed(1, 6, 7))
    assert [event.kv.mod_revision for event in delivery.events] == [5, 6, 6, 7]
    assert delivery.revision == 7
    feed(cursors, changed(1, 8, fragment=True))
    assert starts(cursors)[0] == 8
    [delivery] = feed(cursors, changed(1, 8))
    assert [event.kv.mod_revision for event in delivery.events] == [8]


def test_answers_to_progress_requests_belong_to_no_range(cursors: Cursors) -> None:
    assert not feed(cursors, pb.WatchResponse(watch_id=-1), pb.WatchResponse(watch_id=0), changed(1))
    assert starts(cursors) == [5, 5]


def test_compaction_is_told_with_the_oldest_revision(cursors: Cursors) -> None:
    with pytest.raises(Compacted) as caught:
        feed(cursors, pb.WatchResponse(watch_id=1, canceled=True, compact_revision=17))
    assert caught.value.compact_revision == 17


def test_created_and_cancelled_is_a_refusal(cursors: Cursors) -> None:
    refusal = pb.WatchResponse(watch_id=0, created=True, canceled=True, cancel_reason="PermissionDenied")
    with pytest.raises(TokenExpired):
        feed(cursors, refusal)
    with pytest.raises(Unavailable):
        feed(cursors, pb.WatchResponse(watch_id=1, canceled=True, cancel_reason="no leader"))


def test_a_store_that_is_behind_is_noticed(cursors: Cursors) -> None:
    feed(cursors, created(1, 9), changed(1, 20))
    cursors.restart()
    feed(cursors, created(1, 20), created(2, 20))
    assert not cursors.behind
    cursors.restart()
    feed(cursors, created(1, 19), created(2, 19))
    assert cursors.lost(19)
    assert [cursors.behind] == [True]
    assert not cursors.lost(20)
