"""The one thread of a client: an asyncio loop, and the way into it from other threads.

Everything that touches a connection happens in it. It sleeps until a socket, a timer or another thread wakes
it: an idle client costs nothing but the timers that its watches and leases have set. Those set them by
`beat_after` and `beat_before`, so that what may happen a little sooner or later happens in one wake-up.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from elastic.etcd import errors

T = TypeVar("T")

_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]

# Seconds between two moments at which timers that have a choice go off.
BEAT = 1.0

# A coroutine keeps its own deadline. This much later the thread itself must be stuck.
_GRACE_SECONDS = 5.0
_CLOSE_SECONDS = 5.0


def beat_after(moment: float) -> float:
    """The first beat at or after a moment of the monotonic clock: less than BEAT seconds later."""
    return math.ceil(moment / BEAT) * BEAT


def beat_before(moment: float) -> float:
    """The last beat at or before a moment of the monotonic clock."""
    return math.floor(moment / BEAT) * BEAT


class Loop:
    """Runs coroutines in its thread, which starts with the first of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: _EventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def inside(self) -> bool:
        """Whether the calling thread is the loop's own."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout: float) -> T:
        """Waits for what the coroutine returns or raises; it keeps within `timeout` seconds by itself.

        Raises ClientClosed if the loop is, or is being, closed.
        """
        if self.inside:
            coroutine.close()
            raise RuntimeError("an etcd call was made from within a sink's put(): use another thread")
        with self._starting(coroutine) as loop:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(timeout + _GRACE_SECONDS)
        except concurrent.futures.CancelledError:
            raise errors.ClientClosed("the etcd client was closed during the call", applied="maybe") from None
        except concurrent.futures.TimeoutError:
            raise errors.DeadlineExceeded(
                "the thread of the etcd client is stuck: a sink's put() must not block", applied="maybe"
            ) from None
        finally:
            future.cancel()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Job:
        """Runs the coroutine on its own. Raises ClientClosed as `run` does."""
        job = Job(self)
        with self._starting(coroutine) as loop:
            loop.call_soon_threadsafe(job.begin, coroutine)
        return job

    def post(self, callback: Callable[[], object]) -> None:
        """Has the loop call this soon; nothing happens if it is closed."""
        with self._lock:
            if self._loop is not None and not self._closed:
                self._loop.call_soon_threadsafe(callback)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancels everything that runs, then runs `last`, and joins the thread. Idempotent and bounded."""
        end: concurrent.futures.Future[None] | None = None
        with self._lock:
            if self._loop is not None and not self._closed:
                end = asyncio.run_coroutine_threadsafe(_wind_up(last), self._loop)
            self._closed = True
        if self._thread is not None and not self.inside:
            self._thread.join(_CLOSE_SECONDS)
            if end is not None and end.done():
                end.result()

    @contextlib.contextmanager
    def _starting(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with self._lock:
            if self._closed:
                coroutine.close()
                raise errors.ClientClosed("the etcd client is closed")
            if self._loop is None:
                self._loop = _EventLoop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="etcd-client", daemon=True
                )
                self._thread.start()
            yield self._loop


class Job:
    """A coroutine that runs in the loop until it ends or is stopped; made by `Loop.start`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._over = threading.Event()

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """For the loop alone."""
        self._task = asyncio.get_running_loop().create_task(coroutine)
        self._task.add_done_callback(self._ended)

    def stop(self, timeout: float) -> None:
        """Cancels the coroutine and waits until it has ended, unless called by the loop's own thread."""
        self._loop.post(self._cancel)
        if not self._loop.inside:
            self._over.wait(timeout)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._over.set()
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            # A fault of ours or of a sink's, reported as one that ends a thread is.
            about = (type(fault), fault, fault.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(about))


class _EventLoop(asyncio.SelectorEventLoop):
    """Looks names up in a thread of their own, for nothing can end a lookup: it must not hold up the exit."""

    async def getaddrinfo(  # type: ignore[override]  # the stubs tell the kinds of addresses apart
        self,
        host: str | bytes | None,
        port: str | bytes | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 -- asyncio's name
        proto: int = 0,
        flags: int = 0,
    ) -> list[_Address]:
        if isinstance(host, str) and isinstance(port, int) and "%" in host:
            return [_zoned(host, port)]
        future: asyncio.Future[list[_Address]] = self.create_future()

        def look_up() -> None:
            found: list[Any] = []
            failure: OSError | None = None
            try:
                found = socket.getaddrinfo(host, port, family, type, proto, flags)
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self.call_soon_threadsafe(tell, found, failure)

        def tell(found: list[_Address], failure: OSError | None) -> None:
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(found)

        threading.Thread(target=look_up, name="etcd-lookup", daemon=True).start()
        return await future


def _zoned(host: str, port: int) -> _Address:
    """An IPv6 address with a zone, which the C library takes for some kinds of address only."""
    address, _, zone = host.partition("%")
    index = int(zone) if zone.isdigit() else socket.if_nametoindex(zone)
    return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, index)


def _run(loop: _EventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _wind_up(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CLOSE_SECONDS / 2)
    try:
        await last()
    finally:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.stop)
