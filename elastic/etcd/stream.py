"""One watch stream: its requests, its responses, and the notice when the server has gone silent.

It knows nothing of what is watched and never reconnects: that is `watch`. The server is asked for progress
when it has been silent for a while, and the stream is cut if it does not answer that: a frozen or cut-off
server is noticed within seconds. Watches that are silent together ask together: a wake-up for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from elastic.etcd import errors, wire
from elastic.etcd._pb import etcd_pb2 as pb
from elastic.etcd.channels import Line, Pool
from elastic.etcd.loop import beat_after
from elastic.etcd.rpc import CallEnded, Stream

# Seconds of silence, and up to a beat more, before the server is asked, and seconds it then has to answer.
# Together they are how long a frozen member may hold up news: less than the 5 s in which a node should have
# joined. Progress revisions are not used for anything: those of older servers may be ahead of events still
# to come.
SILENCE = 1.0
PATIENCE = 1.5


class WatchStream:
    """An open stream over `stream`; read it with `next`, and `close` it in the end."""

    def __init__(self, pool: Pool, line: Line, stream: Stream, creations: Sequence[pb.WatchRequest]) -> None:
        self._pool = pool
        self._line = line
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._asked = 0.0
        self._silent = False
        for creation in creations:
            stream.send(creation.SerializeToString())
        self._timer = self._loop.call_at(self._due(), self._listen)

    async def next(self) -> pb.WatchResponse:
        """The next response. Raises EtcdError when the stream has broken."""
        try:
            message = await self._stream.receive()
            response = None if message is None else wire.WATCH.response.FromString(message)
        except DecodeError as garbled:
            self._pool.failed(self._line)
            raise errors.Unavailable(f"etcd at {self._line.endpoint} sent garbage: {garbled}") from garbled
        except CallEnded as ended:
            error = self._pool.learn(self._line, ended.status)
            if self._silent:
                self._line.mistrust(since=self._asked)
                seconds = self._loop.time() - self._stream.heard
                raise errors.Unavailable(
                    f"etcd at {self._line.endpoint} has been silent for {seconds:.1f} s on a watch"
                ) from ended
            raise error from ended
        if response is None:
            self._pool.failed(self._line)
            raise errors.Unavailable(f"etcd at {self._line.endpoint} ended the watch stream")
        if self._asked:
            self._asked = 0.0
            self._timer.cancel()
            self._timer = self._loop.call_at(self._due(), self._listen)
        return response

    def close(self) -> None:
        """Ends the stream. Idempotent."""
        self._timer.cancel()
        self._stream.cancel()

    def _due(self) -> float:
        if self._asked > self._stream.heard:
            return self._asked + PATIENCE
        return beat_after(self._stream.heard + SILENCE)

    def _listen(self) -> None:
        now = self._loop.time()
        if now >= self._due():
            if self._asked > self._stream.heard:
                self._silent = True
                self._stream.expire()
                return
            self._asked = now
            request = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
            self._stream.send(request.SerializeToString())
        self._timer = self._loop.call_at(self._due(), self._listen)
