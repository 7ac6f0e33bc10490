"""Over HTTP: whether the agent's loop answers, and whether its workers run.

    GET /healthz   200 whenever the loop answers, whatever it waits for; otherwise 503
    GET /readyz    200 while the workers run; otherwise 503

The answer is JSON (:class:`Health`). It is given by a small process, the responder, that asks the loop each
time: the loop finds `fileno` readable and calls `answer`. So the loop need not wake up for it when nobody
asks, and an agent that is stuck or stopped is reported as such, since who answers is not stopped with it.
The responder ends with the agent, however that ends.

This file is also the responder's program. It runs by ``exec`` in an interpreter without site-packages, so it
imports the standard library and nothing else. It knows nothing of agents, and decides nothing but whether an
answer came in time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

log = logging.getLogger("elastic.agent")

DEFAULT_HOST = "127.0.0.1"
DEFAULT_TIMEOUT = 5.0
"""Seconds that the loop may take to answer."""

_MOST_BYTES = 65536  # of one answer
_CLOSE_SECONDS = 2.0  # for the responder to end by itself
_SHORT_LIFE = 2.0  # seconds: a responder that ends sooner is not started again
_CLIENT_SECONDS = 10.0  # for a client to send its request, and to take the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the agent is: plain values for who asks.

    `state` is a word for what it does, `waits_for` says what for, in words; `since` is for how many seconds
    already. `ready`: its workers run. `round` and `rank` are None before there is a world, and
    `etcd_connected` is None where the rendezvous has no etcd.
    """

    state: str
    ready: bool = False
    waits_for: str = ""
    since: float = 0.0
    round: int | None = None
    rank: int | None = None
    etcd_connected: bool | None = None


class HealthServer:
    """The agent's side. For one thread, the loop's; it never waits, but in `close`.

    `port` 0 takes a free one, and `timeout` is how many seconds the loop may take to answer. Raises OSError,
    with a sentence, where the address cannot be listened on, and ValueError for a port or a timeout that is
    none.
    """

    def __init__(self, host: str = DEFAULT_HOST, port: int = 0, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"the health port is {port}: it must be a number from 0 to 65535")
        if not timeout > 0:
            raise ValueError(f"the health timeout is {timeout}: it must be positive, in seconds")
        self._timeout = timeout
        self._listener = _listen(host, port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        """The host and the port where it listens."""
        self._link: socket.socket | None = None
        try:
            self._start()
        except OSError:
            self._listener.close()
            raise

    def fileno(self) -> int | None:
        """Readable when somebody asks; None where nobody can any more. It can become another one."""
        return None if self._link is None else self._link.fileno()

    def answer(self, health: Health) -> None:
        """Answer whoever asks; nothing, where nobody does. To be called by the loop whenever it passes."""
        if self._link is None:
            return
        asked = False
        try:
            while self._link.recv(_MOST_BYTES):
                asked = True
            self._restart()  # the responder is gone
        except BlockingIOError:
            if asked:
                self._send(health)
        except OSError:
            self._restart()

    def close(self) -> None:
        """End the responder. May be called again."""
        self._listener.close()
        self._end()

    # -- within ------------------------------------------------------------------------------------

    def _send(self, health: Health) -> None:
        if self._link is not None:
            content = asdict(health) | {"since": round(health.since, 3)}
            # A responder that does not take it is stopped, or gone, which is seen next time.
            with contextlib.suppress(OSError):
                self._link.send(json.dumps(content).encode())

    def _start(self) -> None:
        """Start the responder. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = (self._listener.fileno(), theirs.fileno())
        try:
            ours.setblocking(False)
            command = [sys.executable, "-I", "-S", __file__, *map(str, fds), str(self._timeout)]
            self._responder = subprocess.Popen(
                command,
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._link = ours
        self._started_at = time.monotonic()

    def _restart(self) -> None:
        """Start a new responder in place of one that has ended, unless that was at once."""
        lived = time.monotonic() - self._started_at
        self._end()
        problem = f"it has ended after {lived:.1f} s"
        if lived >= _SHORT_LIFE:
            try:
                self._start()
            except OSError as e:
                problem = str(e)
            else:
                log.warning("the process that answers health checks has ended; there is a new one")
                return
        log.warning("health checks are not answered any more: the process for it: %s", problem)
        self._listener.close()

    def _end(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._responder.wait(_CLOSE_SECONDS)
        self._responder.kill()
        self._responder.wait()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as e:
        why = (
            f"the health server cannot listen on {host}, port {port} ({e.strerror or e}); choose another one"
        )
        raise OSError(e.errno, why) from e


# -- the responder ---------------------------------------------------------------------------------


class _Loop:
    """The loop as the responder sees it: what it is asked, and its latest answer."""

    def __init__(self, link: socket.socket, timeout: float) -> None:
        self._link = link
        self._timeout = timeout
        self._news = threading.Condition()
        self._answer: dict[str, Any] | None = None
        self._answers = 0
        self._is_asked = False

    def follow(self) -> None:
        """Take answers until the agent ends."""
        with contextlib.suppress(ConnectionResetError):  # it ended while it was asked
            while data := self._link.recv(_MOST_BYTES):
                with self._news:
                    self._answer = json.loads(data)
                    self._answers += 1
                    self._is_asked = False
                    self._news.notify_all()

    def ask(self) -> tuple[dict[str, Any] | None, bool]:
        """Its latest answer, and whether that came now. All who ask at the same time get the same one."""
        with self._news:
            seen = self._answers
            if not self._is_asked:
                self._link.send(b"?")
                self._is_asked = True
            has_come = self._news.wait_for(lambda: self._answers > seen, self._timeout)
            return self._answer, has_come

    @property
    def timeout(self) -> float:
        return self._timeout


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_SECONDS
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].rstrip("/")
        if path not in ("", "/healthz", "/readyz"):
            self._reply(HTTPStatus.NOT_FOUND, {"reason": "there are /healthz and /readyz"})
            return
        answer, has_come = self.server.loop.ask()
        if not has_come:
            reason = f"the agent has not answered within {self.server.loop.timeout:g} s"
            self._reply(HTTPStatus.SERVICE_UNAVAILABLE, {"healthy": False, "reason": reason, "last": answer})
            return
        content = {"healthy": True, **(answer or {})}
        is_good = path != "/readyz" or content["ready"]
        self._reply(HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE, content)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _reply(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """A probe every few seconds is not worth a line."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, loop: _Loop) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.loop = loop

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or sent nonsense, is its own affair."""


def main(arguments: list[str]) -> int:
    """Be the responder. `arguments`: the listening socket, the socket to the agent, and the timeout."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    listener, link = (socket.socket(fileno=int(fd)) for fd in arguments[:2])
    loop = _Loop(link, float(arguments[2]))
    server = _Server(listener, loop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    loop.follow()
    os._exit(0)  # clients that are being answered get nothing from an agent that has ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
