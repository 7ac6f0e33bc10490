"""A TCPStoreServer among strangers: garbage, floods, silence. Honest clients are served all the while.

The server is a process of its own, so that its memory and files can be counted.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.blocking import PATIENCE

from elastic.store import Limits, StoreDeniedError, TCPStore, TCPStoreServer
from elastic.store.connection import Connection
from elastic.store.handshake import Claim, Hello, Unproven, check_welcome, new_challenge, new_id, read_hello
from elastic.store.messages import Op, Request, framed, request_frame, take_frame

HOST = "127.0.0.1"
SECRET = "known to friends"
PROGRAM = f"""
import sys
from elastic.store import Limits, TCPStoreServer
limits = Limits(strangers=40, handshake=2.0, stall=2.0)
with TCPStoreServer({HOST!r}, secret={SECRET!r}, limits=limits) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


class Server:
    """A server in a process of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def memory(self) -> int:
        """Resident bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> int:
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    assert server.close() == 0


@pytest.fixture
def friend(server: Server) -> Iterator[TCPStore]:
    with TCPStore(HOST, server.port, secret=SECRET, timeout=PATIENCE) as friend:
        yield friend


def stranger(port: int) -> tuple[socket.socket, Hello]:
    """A raw connection, and what the server has said."""
    raw = socket.create_connection((HOST, port), timeout=PATIENCE)
    return raw, read_hello(frame_from(raw))


def frame_from(raw: socket.socket) -> bytes:
    buffer = bytearray()
    while (body := take_frame(buffer, limit=1 << 24)) is None:
        data = raw.recv(65536)
        assert data, "the server has closed the connection"
        buffer += data
    return body


def proved(port: int) -> socket.socket:
    """A raw connection of somebody who knows the secret."""
    raw, hello = stranger(port)
    claim = Claim(new_id(), new_challenge())
    raw.sendall(framed(claim.body(SECRET.encode(), hello)))
    check_welcome(frame_from(raw), SECRET.encode(), hello, claim)
    return raw


def is_closed(raw: socket.socket) -> bool:
    """Whether the server closes the connection, after whatever it still says."""
    with contextlib.suppress(ConnectionError):
        while raw.recv(65536):
            pass
    return True


def noise(dice: random.Random) -> bytes:
    """Random bytes: raw ones, ones that begin as a frame does, and requests with something changed."""
    kind = dice.randrange(4)
    if kind == 0:
        return dice.randbytes(dice.randrange(1, 200))
    if kind == 1:
        return framed(dice.randbytes(dice.randrange(1, 200)))
    fields = tuple(dice.randbytes(dice.randrange(12)) for _ in range(dice.randrange(5)))
    frame = bytearray(request_frame(Request(dice.getrandbits(20), dice.choice(list(Op)), fields, wait=5)))
    for _ in range(dice.randrange(4)):
        frame[dice.randrange(len(frame))] = dice.randrange(256)
    return bytes(frame if kind == 2 else frame[: dice.randrange(1, len(frame))])


def test_garbage_harms_nobody(server: Server, friend: TCPStore) -> None:
    dice = random.Random(20)
    stop = threading.Event()
    served: list[int] = []

    def live() -> None:
        while not stop.is_set():
            served.append(friend.add("served", 1))

    def attack(count: int) -> None:
        for number in range(count):
            # One in ten has got in, and sends frame after frame.
            with (
                proved(server.port)
                if number % 10 == 0
                else socket.create_connection((HOST, server.port)) as raw
            ):
                raw.settimeout(PATIENCE)
                with contextlib.suppress(ConnectionError):
                    for _ in range(11 if number % 10 == 0 else 1):
                        raw.sendall(noise(dice))
                if number % 7 == 0:
                    # Reset instead of closed.
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    life = threading.Thread(target=live)
    life.start()
    try:
        attack(1000)
        files, memory = server.files(), server.memory()
        attack(9000)
        give_up = time.monotonic() + PATIENCE
        while len(served) <= 1000:  # how often it had its turn so far is the machine's affair
            assert time.monotonic() < give_up
            attack(100)
    finally:
        stop.set()
        life.join()
    assert server.process.poll() is None
    assert served == list(range(1, len(served) + 1))
    assert len(served) > 1000
    assert server.files() <= files + 50
    assert server.memory() < memory + (16 << 20)


def test_replayed_and_wrong_proofs_stay_outside(server: Server) -> None:
    raw, hello = stranger(server.port)
    claim = Claim(new_id(), new_challenge())
    proof = framed(claim.body(SECRET.encode(), hello))
    with raw:
        raw.sendall(proof)
        check_welcome(frame_from(raw), SECRET.encode(), hello, claim)
    again, other = stranger(server.port)
    with again:
        again.sendall(proof)
        with pytest.raises(Unproven, match="another secret"):
            check_welcome(frame_from(again), SECRET.encode(), other, claim)
        assert is_closed(again)
    early = socket.create_connection((HOST, server.port), timeout=PATIENCE)
    with early:
        frame_from(early)
        early.sendall(request_frame(Request(1, Op.LIST)))
        assert b"not the handshake of a store" in frame_from(early)
        assert is_closed(early)


def test_a_wait_for_ages_harms_nobody(server: Server, friend: TCPStore) -> None:
    with proved(server.port) as raw:
        raw.sendall(request_frame(Request(1, Op.WAIT, (b"awaited",), wait=2**64 - 1)))
        friend.add("n", 1)
        friend.set("awaited", "")
        assert frame_from(raw)


@pytest.mark.parametrize("length", [513, 1 << 24, (1 << 32) - 1])
def test_a_giant_length_costs_a_stranger_its_connection(server: Server, length: int) -> None:
    raw, _ = stranger(server.port)
    with raw:
        raw.sendall(length.to_bytes(4, "big"))
        assert is_closed(raw)


def test_a_giant_length_costs_a_client_its_connection_alone(server: Server, friend: TCPStore) -> None:
    before = server.memory()
    with contextlib.ExitStack() as owned:
        for _ in range(20):
            raw = owned.enter_context(proved(server.port))
            raw.sendall((1 << 24).to_bytes(4, "big") + b"x" * 1000)  # allowed, and never sent
        friend.set("a", "1")
        assert server.memory() < before + (8 << 20)
        raw = owned.enter_context(proved(server.port))
        raw.sendall(((1 << 24) + 1).to_bytes(4, "big"))
        assert is_closed(raw)


def test_who_says_nothing_or_little_is_cut(server: Server, friend: TCPStore) -> None:
    silent, _ = stranger(server.port)
    slow, _ = stranger(server.port)
    half = proved(server.port)
    idle = proved(server.port)
    with silent, slow, half, idle:
        slow.sendall(b"\x00")
        half.sendall(request_frame(Request(1, Op.PING))[:-1])
        friend.set("a", "1")
        assert is_closed(silent)
        assert is_closed(slow)
        assert is_closed(half)
        # A client that has nothing to ask is no slow one.
        idle.sendall(request_frame(Request(1, Op.PING)))
        assert frame_from(idle)


def test_who_does_not_take_its_answers_is_cut(server: Server, friend: TCPStore) -> None:
    friend.set("big", b"x" * 6_000_000)
    before, files = server.memory(), server.files()
    with proved(server.port) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(TimeoutError, ConnectionError):
            raw.settimeout(0.3)
            for number in range(200):
                raw.sendall(request_frame(Request(number + 1, Op.GET, (b"big",))))
            raw.sendall(bytes(100 << 20))  # nor does the server take what comes after
        assert friend.get("big", 10)[:1] == b"x"
        assert server.memory() < before + (40 << 20)  # one answer, where 200 would be 1.2 GB
        given_up = time.monotonic() + PATIENCE
        while server.files() > files:
            assert time.monotonic() < given_up
            time.sleep(0.05)
    friend.delete_key("big")


def test_strangers_leave_room_for_clients(server: Server, friend: TCPStore) -> None:
    with contextlib.ExitStack() as owned:
        for _ in range(200):
            owned.enter_context(socket.create_connection((HOST, server.port)))
        for _ in range(5):
            with TCPStore(HOST, server.port, secret=SECRET, timeout=PATIENCE) as newcomer:
                newcomer.add("newcomers", 1)
        assert server.files() < 40 + 30
    assert friend.get("newcomers") == b"5"


def test_writes_that_claim_any_number_are_remembered_within_bounds() -> None:
    limits = Limits(replays=100)
    with TCPStoreServer(HOST, limits=limits) as server:
        connection = Connection(HOST, server.port, secret=b"", client=new_id(), timeout=PATIENCE)
        for write in (*range(1, 500), 2**63, 2**64 - 1):
            request = Request(connection.next_number(), Op.ADD, (b"n", b"1"), write=write, floor=1)
            connection.ask(request, deadline=1e9, heartbeat=PATIENCE)
        connection.close()
        assert len(server._board._replays) == 100


def test_a_pipeline_of_requests_is_answered_in_order(server: Server) -> None:
    with proved(server.port) as raw:
        raw.sendall(b"".join(request_frame(Request(n, Op.PING)) for n in range(500)))
        numbers: list[int] = []
        buffer = bytearray()
        while len(numbers) < 500:
            buffer += raw.recv(65536)
            while (body := take_frame(buffer, limit=1 << 20)) is not None:
                numbers.append(int.from_bytes(body[2:10], "big"))
    assert numbers == list(range(500))


def test_a_server_without_files_for_more_connections_goes_on() -> None:
    program = f"""
import contextlib, resource, socket
from elastic.store import StoreError, TCPStore, TCPStoreServer
server = TCPStoreServer({HOST!r})
honest = TCPStore({HOST!r}, server.port, timeout=20)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
flood = []
with contextlib.suppress(OSError):
    while True:
        flood.append(socket.create_connection(({HOST!r}, server.port)))
print(len(flood) > 5, honest.add("n", 1))
for each in flood:
    each.close()
with TCPStore({HOST!r}, server.port, timeout=20) as later:
    print(later.add("n", 1))
honest.close()
server.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "1", "2"]


def test_an_open_server_tells_a_stranger_only_that_it_is_a_store(server: Server) -> None:
    with pytest.raises(StoreDeniedError, match="another secret than this store, or none; give both the same"):
        TCPStore(HOST, server.port, timeout=PATIENCE)
