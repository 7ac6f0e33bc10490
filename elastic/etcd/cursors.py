"""Where a watch stands in each of its ranges, and what each response means for that.

Pure: responses go in, batches and errors come out. A watch id is a range's place in the list, counted from
one: etcd 3.5.1 reports a refused creation as id 0, and ends a live watch with that id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from elastic.etcd import errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.values import Event, KeyRange


@dataclass(slots=True)
class Cursor:
    """One range; `next_revision` is the first one not yet delivered, 0 until "now" is known."""

    keys: KeyRange
    next_revision: int
    created: bool = False
    partial: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Whole revisions of one range, up to and including `revision`."""

    keys: KeyRange
    revision: int
    events: tuple[Event, ...]


class Cursors:
    """The cursors of one watch over all of its streams."""

    def __init__(self, ranges: Sequence[KeyRange], *, start_revision: int) -> None:
        self._cursors = [Cursor(keys, start_revision) for keys in ranges]
        self._store_revision = 0

    def restart(self) -> list[pb.WatchRequest]:
        """For a new stream: the requests that create every range where it stands."""
        for cursor in self._cursors:
            cursor.created = False
            # Half a response is worth nothing: the new stream sends it whole.
            cursor.partial.clear()
        return [
            pb.WatchRequest(
                create_request=pb.WatchCreateRequest(
                    key=cursor.keys.start,
                    range_end=cursor.keys.end,
                    start_revision=cursor.next_revision,
                    watch_id=number,
                    # Large responses arrive in pieces instead of breaking the stream, again and again.
                    fragment=True,
                )
            )
            for number, cursor in enumerate(self._cursors, start=1)
        ]

    @property
    def live(self) -> bool:
        """Whether every range has been created on the present stream."""
        return all(cursor.created for cursor in self._cursors)

    @property
    def behind(self) -> bool:
        """Whether the present server is at a lower revision than what was seen before.

        That is either a member that lags, or a store that lost its history.
        """
        return self.lost(self._store_revision)

    def lost(self, store_revision: int) -> bool:
        """Whether a store at this revision has lost history that was seen already."""
        return any(cursor.next_revision - 1 > store_revision for cursor in self._cursors)

    def feed(self, response: pb.WatchResponse, *, endpoint: str) -> Delivery | None:
        """What the response delivers, if anything. Raises the error that it reports."""
        if response.compact_revision:
            cursor = self._named(response)
            where = f" ({cursor.keys.start!r} from revision {cursor.next_revision})" if cursor else ""
            raise errors.Compacted(
                f"etcd at {endpoint} has compacted the history that the watch needs{where}: the oldest "
                f"revision left is {response.compact_revision}; read afresh and watch from there",
                compact_revision=response.compact_revision,
            )
        if response.canceled:
            raise errors.from_cancel_reason(response.cancel_reason, endpoint=endpoint)
        cursor = self._named(response)
        if cursor is None:
            # An answer to a progress request belongs to no range: it only shows that the server lives.
            return None
        if response.created:
            self._store_revision = response.header.revision
            cursor.created = True
            if not cursor.next_revision:
                # "From now" becomes a revision, so that a new stream does not lose what lies between.
                cursor.next_revision = response.header.revision + 1
        cursor.partial.extend(map(wire.event, response.events))
        if response.fragment or not cursor.partial:
            return None
        events = tuple(cursor.partial)
        cursor.partial.clear()
        revision = events[-1].kv.mod_revision
        cursor.next_revision = revision + 1
        return Delivery(cursor.keys, revision, events)

    def _named(self, response: pb.WatchResponse) -> Cursor | None:
        number = response.watch_id
        return self._cursors[number - 1] if 0 < number <= len(self._cursors) else None
