"""One watch stream: its requests, its responses, and the notice when the server has gone silent.

It knows nothing of what is watched and never reconnects: that is `watch`. The server is asked for progress
when it has been silent for a while, and the stream is cut if it does not answer that: a frozen or cut-off
server is noticed within seconds whatever gRPC's own keepalive does. The thread with which gRPC takes the
requests is the one that keeps this time, so it costs no thread more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import grpc

from elastic.etcd import errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.channels import Line, Metadata, Pool

# Seconds of silence before the server is asked, and seconds it then has to answer. Together they are how
# long a frozen member may hold up news: less than the 5 s in which a node should have joined. Progress
# revisions are not used for anything: those of older servers may be ahead of events still to come.
SILENCE = 2.0
PATIENCE = 1.5


class WatchStream:
    """An open stream. Iterate over it in one thread; `cancel` it from any."""

    def __init__(
        self, pool: Pool, line: Line, creations: Sequence[pb.WatchRequest], *, metadata: Metadata
    ) -> None:
        self._pool = pool
        self._line = line
        self._over = threading.Event()
        self._opened = threading.Event()
        self._heard = time.monotonic()
        self._silent = False
        self._call: grpc.CallIterator[pb.WatchResponse] = pool.stream(
            line, wire.WATCH, self._requests(creations), metadata=metadata
        )
        self._hang_up: Callable[[], object] = self._call.cancel
        self._opened.set()

    def __iter__(self) -> Iterator[pb.WatchResponse]:
        """The responses, until the stream breaks, which raises EtcdError, or is cancelled, which ends it."""
        broken: errors.EtcdError | None = None
        try:
            for response in self._call:
                self._heard = time.monotonic()
                yield response
        except grpc.RpcError as error:
            # gRPC raises the call itself, and its finaliser takes a lock that a thread of gRPC's may hold
            # for ever once the interpreter ends. So our error keeps no reference to it.
            broken = self._pool.learn(self._line, error)
        finally:
            wanted = self._over.is_set()
            self.cancel()
        if wanted:
            return
        if self._silent:
            raise errors.Unavailable(
                f"etcd at {self._line.endpoint} has been silent for {SILENCE + PATIENCE:g} s on a watch"
            )
        if broken is not None:
            raise broken
        self._pool.failed(self._line)
        raise errors.Unavailable(f"etcd at {self._line.endpoint} ended the watch stream")

    def cancel(self) -> None:
        """Ends the stream. Idempotent."""
        self._over.set()
        self._hang_up()

    def _requests(self, creations: Sequence[pb.WatchRequest]) -> Iterator[pb.WatchRequest]:
        """What gRPC's thread sends: the creations, then a progress request after each silence."""
        yield from creations
        self._opened.wait()
        asked = 0.0
        while True:
            now = time.monotonic()
            heard = self._heard
            unanswered = asked > heard
            due = asked + PATIENCE if unanswered else heard + SILENCE
            if now < due:
                if self._over.wait(due - now):
                    return
            elif unanswered:
                self._silent = True
                self._hang_up()
                return
            else:
                asked = now
                yield pb.WatchRequest(progress_request=pb.WatchProgressRequest())
