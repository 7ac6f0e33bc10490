"""FileStore between processes: who is killed, who is stopped, and what is done to the file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.blocking import PATIENCE, Blocked

from elastic.store import FileStore, StoreError, StoreTimeoutError
from elastic.store.file_watch import FileWatch

COUNT = """
import sys
from elastic.store import FileStore
store = FileStore(sys.argv[1])
while True:
    print(store.add("n", 1), flush=True)
    store.set("bulk", bytes(int(sys.argv[2])))
"""
SOME = """
import sys
from elastic.store import FileStore
with FileStore(sys.argv[1]) as store:
    print(*(store.add("n", 1) for _ in range(50)))
"""
HOLD = """
import sys
from elastic.store import FileStore
store = FileStore(sys.argv[1])
with store._log.locked(timeout=10):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[FileStore]:
    with FileStore(path, timeout=PATIENCE) as store:
        yield store


@contextlib.contextmanager
def program(text: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


# -- processes that end -----------------------------------------------------------------------------


@pytest.mark.parametrize("bulk", [10, 300_000])  # the file is never written anew, or all the time
def test_who_is_killed_loses_nothing_that_was_acknowledged(store: FileStore, path: Path, bulk: int) -> None:
    seen = 0
    for round_ in range(3):
        with program(COUNT, path, bulk) as process:
            assert process.stdout is not None
            while seen < 20 * (round_ + 1):
                seen = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = [line for line in process.stdout.read().split("\n") if line]
            seen = max([seen, *map(int, rest)])
        found = int(store.get("n"))
        # The last one may have been done and not acknowledged.
        assert seen <= found <= seen + 1
        assert set(store.get("bulk")) <= {0}
        seen = store.add("n", 1)
    with FileStore(path) as fresh:
        assert int(fresh.get("n")) == seen


def test_processes_count_together(store: FileStore, path: Path) -> None:
    with contextlib.ExitStack() as owned:
        processes = [owned.enter_context(program(SOME, path)) for _ in range(4)]
        totals = [int(total) for each in processes for total in each.communicate(timeout=PATIENCE)[0].split()]
    assert sorted(totals) == list(range(1, 201))
    assert store.get("n") == b"200"


def test_a_lock_goes_with_its_holder_and_not_before(store: FileStore, path: Path) -> None:
    with program(HOLD, path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        store.set_timeout(0.1)
        with pytest.raises(StoreError, match=r"lock of the store's file .*/store was not free within 0\.1 s"):
            store.set("a", "")
        store.set_timeout(PATIENCE)
        call = Blocked(lambda: store.set("a", "1"))
        assert call.still()
        holder.kill()
        assert call.result() is None
    assert store.get("a") == b"1"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_locks_for_itself(store: FileStore) -> None:
    """An open file that a child has from its parent shares the lock, so that both would have it at once."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            os.read(told, 1)
            store.set_timeout(0.1)
            try:
                store.set("a", "")
            except StoreError as e:
                status = 0 if "was not free" in str(e) else 2
        os._exit(status)
    with store._log.locked(timeout=PATIENCE):
        os.write(tell, b"x")
        assert os.waitpid(child, 0)[1] == 0
    os.close(told)
    os.close(tell)
    assert not store.has("a")


# -- what is done to the file -----------------------------------------------------------------------


def test_a_write_that_was_cut_anywhere_is_as_if_it_had_not_been(store: FileStore, path: Path) -> None:
    store.set("a", "old")
    whole = path.stat().st_size
    store.multi_set(["a", "b"], ["new", "x" * 20])
    store.close()
    written = path.read_bytes()
    for end in range(whole, len(written)):
        path.write_bytes(written[:end])
        with FileStore(path) as cut:
            assert cut.get("a") == b"old"
            assert not cut.has("b")
            cut.set("c", "later")
        with FileStore(path) as again:
            assert (again.get("a"), again.get("c"), again.num_keys()) == (b"old", b"later", 2)


def test_a_file_whose_maker_was_killed_at_once_is_made_anew(path: Path) -> None:
    for start in (b"", b"elas", b"elastic store 1\n12345"):
        path.write_bytes(start)
        with FileStore(path) as store:
            store.set("a", "1")
        with FileStore(path) as store:
            assert store.get("a") == b"1"


def test_damage_is_said_to_be_damage(store: FileStore, path: Path) -> None:
    store.set("a", "value")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"/store is damaged, the record at byte 32 .*: delete it"):
        FileStore(path)


def test_the_file_of_something_else_is_left_alone(path: Path) -> None:
    path.write_text("my thesis")
    with pytest.raises(StoreError, match="does not begin as a store's file") as caught:
        FileStore(path)
    assert "delete" not in str(caught.value)
    assert path.read_text() == "my thesis"


def test_a_place_without_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"/missing/store cannot be used: No such file or directory"):
        FileStore(tmp_path / "missing" / "store")


@pytest.mark.parametrize("remove", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_store_that_began_anew_is_seen_to_be_another(
    store: FileStore, path: Path, remove: Callable[[Path], object]
) -> None:
    store.set("a", "1")
    first = store.instance
    with FileStore(path) as same:
        assert same.instance == first
    call = Blocked(lambda: store.wait_change("a", b"1"))
    assert call.still()
    remove(path)
    assert call.result() is True
    assert store.peek("a") is None
    assert store.instance != first
    with FileStore(path) as same:
        assert same.instance == store.instance


def test_only_its_owner_may_read_the_file(store: FileStore, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    inode = path.stat().st_ino
    for _ in range(30):
        store.set("a", bytes(50_000))
    assert path.stat().st_ino != inode  # written anew
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_has_grown_is_written_anew(store: FileStore, path: Path) -> None:
    with FileStore(path, timeout=PATIENCE) as other:
        call = Blocked(lambda: other.wait_change("end", None))
        instance, largest = store.instance, 0
        for number in range(300):
            store.set("a", b"%d" % number + bytes(50_000))
            store.add("n", 1)
            if number % 30 == 0:
                assert other.get("a").startswith(b"%d" % number)
            largest = max(largest, path.stat().st_size)
        assert 1 << 19 < largest < 2 << 20  # 15 MB were written
        store.set("end", "")
        assert call.result() is True
        with FileStore(path) as fresh:
            for each in (other, fresh):
                assert (each.get("n"), each.num_keys(), each.instance) == (b"300", 3, instance)
            fresh.set("later", "1")
            assert store.peek("later") == other.peek("later") == b"1"
    assert [each.name for each in path.parent.iterdir()] == ["store"]


def test_a_file_reached_by_a_link_stays_behind_it(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    with FileStore(link) as one, FileStore(path) as two:
        for _ in range(30):
            one.set("a", bytes(50_000))
        two.set("b", "1")
        assert one.get("b") == b"1"
    assert link.is_symlink()


# -- waiting ----------------------------------------------------------------------------------------


def test_a_change_on_this_host_wakes_at_once(store: FileStore, path: Path) -> None:
    """A hundred turns of a ball between two stores: far less time than as many looks would take."""

    def play(mine: FileStore, start: int) -> None:
        for number in range(start, 100, 2):
            assert mine.wait_change("ball", b"%d" % (number - 1) if number > 1 else None)
            seen = mine.peek("ball")
            while seen != b"%d" % number:  # one look serves for both, or a turn in between is missed
                mine.wait_change("ball", seen)
                seen = mine.peek("ball")
            mine.set("ball", b"%d" % (number + 1))

    with FileStore(path, timeout=PATIENCE) as other:
        begun = time.monotonic()
        players = [Blocked(lambda: play(store, 1)), Blocked(lambda: play(other, 2))]
        store.set("ball", "1")
        assert [player.result() for player in players] == [None, None]
        assert time.monotonic() - begun < 25  # a look each half second would take 50


def test_waits_leave_no_files_open(store: FileStore) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        assert not store.wait_change("a", None, 0.01)
        with pytest.raises(StoreTimeoutError):
            store.get("a", 0.01)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_where_nothing_tells_of_changes_a_wait_is_short(path: Path) -> None:
    begun = time.monotonic()
    FileWatch(path).wait(PATIENCE)
    assert time.monotonic() - begun < PATIENCE / 2


def test_close_ends_blocked_calls(store: FileStore) -> None:
    call = Blocked(lambda: store.get("a"))
    assert call.still()
    store.close()
    assert "is closed" in str(call.result())
    store.close()
