"""From `record` to a destination: every event, in order, once; no destination holds up or harms anybody."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic import events
from elastic.events import Event, EventSource, NodeState, RdzvEvent, handlers
from elastic.events.outlet import Outlet
from elastic.events.recording import Recorder

ROOT = Path(__file__).resolve().parents[3]


def event(name: str = "e") -> Event:
    return Event(name, EventSource.AGENT, 5, {"a": 1})


class Kept:
    """A destination that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[Event | RdzvEvent] = []
        self.closed = 0

    def record(self, event: Event | RdzvEvent, /) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]


class Stuck(Kept):
    """A destination that takes an event only once it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()
        self.freed = threading.Event()

    def record(self, event: Event | RdzvEvent, /) -> None:
        self.began.set()
        assert self.freed.wait(60)
        super().record(event)


class Failing:
    def record(self, event: Event | RdzvEvent, /) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    events.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("elastic-events")]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a distribution whose module `their_events` has this source, with the destination `theirs`."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(source: str) -> None:
        (tmp_path / "their_events.py").write_text(source)
        info = tmp_path / "their_events-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their_events\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[elastic.events]\ntheirs = their_events:make\n")
        monkeypatch.delitem(sys.modules, "their_events", raising=False)

    return add


def test_events_arrive_in_order_from_every_thread() -> None:
    kept = Kept()
    events.register_event_handler("mine", kept)

    def some(number: int) -> None:
        for i in range(200):
            events.record(event(f"{number} {i}"), "mine")

    threads = [threading.Thread(target=some, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert events.flush(60)
    for number in range(4):
        own = [name for name in kept.names if name.startswith(f"{number} ")]
        assert own == [f"{number} {i}" for i in range(200)]


def test_what_was_recorded_does_not_change_any_more() -> None:
    stuck = Stuck()
    events.register_event_handler("mine", stuck)
    mine = event()
    events.record(mine, "mine")
    mine.name, mine.metadata["a"] = "changed", 2
    stuck.freed.set()
    assert events.flush(60)
    assert stuck.events == [event()]


def test_by_default_events_are_dropped() -> None:
    events.record(event())
    events.record_rdzv_event(RdzvEvent("n"))
    assert events.flush(0)


def test_the_console_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    events.record(event(), "console")
    assert events.flush(60)
    out, err = capsys.readouterr()
    assert (out, err) == ("", event().serialize() + "\n")


def test_a_file_has_a_line_for_each_event_and_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.jsonl"
    for name in ("one", "two"):
        events.record(event(name), f"file:{path}")
        events.close()
    assert [Event.deserialize(line).name for line in path.read_text().splitlines()] == ["one", "two"]


def test_a_file_that_is_full_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "FILE_BYTES", 200)
    for i in range(50):
        events.record(event(f"{i}"), f"file:{tmp_path}/events.jsonl")
    assert events.flush(60)
    files = [path.name for path in tmp_path.iterdir()]
    assert sorted(files) == [
        "events.jsonl",
        *(f"events.jsonl.{i}" for i in range(1, handlers.FILES_KEPT + 1)),
    ]
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    # The newest, whole.
    assert sorted(int(Event.deserialize(line).name) for line in lines) == list(range(50 - len(lines), 50))


def test_a_handler_of_the_logging_module_is_a_destination(tmp_path: Path) -> None:
    text = io.StringIO()
    events.register_event_handler("mine", logging.StreamHandler(text))
    events.record(event(), "mine")
    assert events.flush(60)
    assert text.getvalue() == event().serialize() + "\n"


def test_the_last_handler_registered_counts() -> None:
    first, second = Kept(), Kept()
    events.register_event_handler("mine", first)
    events.record(event("one"), "mine")
    events.register_event_handler("mine", second)
    events.record(event("two"), "mine")
    events.close()
    assert (first.names, second.names) == (["one"], ["two"])
    assert (first.closed, second.closed) == (1, 1)


@pytest.mark.parametrize("nonsense", ["an event", {"name": "an event"}, None])
def test_what_is_no_event_is_refused_wherever_it_is_to_go(nonsense: Any) -> None:
    for destination in ("null", "console"):
        with pytest.raises(TypeError, match=r"is no event: make one by elastic\.events\.Event"):
            events.record(nonsense, destination)


def test_a_file_may_be_in_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    events.record(event(), "file:~/kept/events.jsonl")
    assert events.flush(60)
    assert (tmp_path / "kept" / "events.jsonl").read_text() == event().serialize() + "\n"


def test_an_unknown_destination_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'consle': did you mean 'console'\? known are console, file"):
        events.record(event(), "consle")
    with pytest.raises(ValueError, match="'file' needs a path"):
        events.record(event(), "file")
    with pytest.raises(ValueError, match="'otel' has the endpoint 'collector:4318': give the whole URL"):
        events.prepare("otel:collector:4318")
    with pytest.raises(ValueError, match="'null' takes no argument, and got 'x'"):
        events.prepare("null:x")
    with pytest.raises(TypeError, match="str is no handler of events"):
        events.register_event_handler("mine", "console")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a name"):
        events.register_event_handler("", Kept())


def test_a_plug_in_is_found_by_its_name(install: Callable[[str], None], tmp_path: Path) -> None:
    install(f"""
import logging
def make(argument):
    return logging.FileHandler({str(tmp_path)!r} + "/" + argument)
""")
    events.record(event(), "theirs:x:y")
    events.close()
    assert (tmp_path / "x:y").read_text() == event().serialize() + "\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module_anywhere", "no_such_module_anywhere"),
        ("", "make"),
        ("def make(argument): return 5", "int is no handler of events"),
    ],
)
def test_a_broken_plug_in_is_named(
    source: str, words: str, install: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    install(source)
    with pytest.raises(RuntimeError, match=rf"'theirs' \(their_events:make\).*{words}"):
        events.prepare("theirs")
    # Who only records is not harmed, and is told once.
    for _ in range(3):
        events.record(event(), "theirs")
    (told,) = caplog.messages
    assert "events for 'theirs' are dropped" in told


def test_a_file_that_cannot_be_opened_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "occupied").write_text("")
    destination = f"file:{tmp_path}/occupied/events.jsonl"
    with pytest.raises(OSError, match="events can't be kept"):
        events.prepare(destination)
    for _ in range(3):
        events.record(event(), destination)
    assert len(caplog.messages) == 1


def test_a_pipe_is_a_destination_where_somebody_reads_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="events can't be kept: nobody reads that pipe"):
        handlers.create_event_handler(f"file:{pipe}")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        handler = handlers.create_event_handler(f"file:{pipe}")
        handler.record(Event("read", EventSource.AGENT))
        assert json.loads(os.read(reader, 1 << 16))["name"] == "read"
        handler.close()  # type: ignore[attr-defined]  # not every handler has one
    finally:
        os.close(reader)


def test_a_handler_that_fails_is_told_once_and_goes_on_getting_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events.register_event_handler("mine", Failing())
    for _ in range(3):
        events.record(event(), "mine")
    assert events.flush(60)
    (told,) = caplog.messages
    assert "could not be recorded at 'mine'" in told
    assert "No space left on device" in told
    events.close()
    assert caplog.messages[1:] == ["3 events for 'mine' were lost in all"]


def test_a_full_disk_is_told_once(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        events.record(event(), "file:/dev/full")
    events.close()
    # Python keeps the last lines for the file, so that closing it fails as well.
    first, at_close, count = caplog.messages
    assert "could not be recorded at 'file:/dev/full': OSError(28, 'No space left on device')" in first
    assert "could not be closed" in at_close
    assert count == "3 events for 'file:/dev/full' were lost in all"
    assert capsys.readouterr().err == ""


def test_events_beyond_the_queue_are_dropped_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    outlet = Outlet("mine", stuck, capacity=2)
    outlet.put(event("0"))
    assert stuck.began.wait(60)
    for i in range(1, 6):
        outlet.put(event(f"{i}"))
    assert len(caplog.messages) == 1
    stuck.freed.set()
    outlet.close(60)
    assert stuck.names == ["0", "1", "2"]
    assert caplog.messages[1:] == ["3 events for 'mine' were lost in all"]


def test_closing_does_not_wait_for_what_is_stuck(caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    outlet = Outlet("mine", stuck)
    outlet.put(event("0"))
    assert stuck.began.wait(60)
    outlet.put(event("1"))
    assert not outlet.flush(0.01)
    outlet.close(0.01)
    assert caplog.messages == ["2 events for 'mine' are lost: it did not take them in 0.01 s"]
    outlet.close(60)
    outlet.put(event("2"))
    stuck.freed.set()
    for thread in threading.enumerate():
        if thread.name == "elastic-events-mine":
            thread.join(60)
    assert stuck.names == ["0"]
    assert stuck.closed == 1


def test_a_closed_recorder_opens_destinations_anew() -> None:
    recorder = Recorder()
    first, second = Kept(), Kept()
    recorder.register("mine", first)
    recorder.close(60)
    with pytest.raises(ValueError, match="unknown destination"):
        recorder.put(event(), "mine")
    recorder.register("mine", second)
    recorder.put(event("new"), "mine")
    recorder.close(60)
    assert (first.names, second.names) == ([], ["new"])


def test_rendezvous_events_are_delivered_once_somebody_listens() -> None:
    kept = Kept()
    events.construct_and_record_rdzv_event("r", "nobody hears it", NodeState.RUNNING)
    events.register_event_handler("dynamic_rendezvous", kept)
    try:
        raise KeyError("broken")
    except KeyError:
        events.construct_and_record_rdzv_event("r", "it broke", NodeState.FAILED, rank=3, local_id=1)
    events.construct_and_record_rdzv_event("r", "named", NodeState.INIT, name="x", hostname="h", pid=7)
    assert events.flush(60)
    failed, named = kept.events
    assert isinstance(failed, RdzvEvent)
    assert isinstance(named, RdzvEvent)
    this = "test_event_recording.py"
    assert failed.name == f"{this}:test_rendezvous_events_are_delivered_once_somebody_listens"
    assert (failed.pid, failed.rank, failed.local_id) == (os.getpid(), 3, 1)
    assert failed.hostname
    assert "KeyError: 'broken'" in failed.error_trace
    assert named == RdzvEvent(f"{this}:x", "r", "named", "h", 7, NodeState.INIT)


def test_a_logging_handler_leads_to_a_destination(tmp_path: Path) -> None:
    kept = Kept()
    events.register_event_handler("mine", kept)
    events.register_event_handler("dynamic_rendezvous", events.get_logging_handler("mine"))
    logger = logging.Logger("torchelastic-events-mine")
    logger.addHandler(events.get_logging_handler("mine"))
    logger.info(event("as an event"))
    logger.info(event("as a line").serialize())
    assert events.flush(60)
    events.record_rdzv_event(RdzvEvent("as a rendezvous event"))
    assert events.flush(60)
    assert events.flush(60)
    assert kept.names == ["as an event", "as a line", "as a rendezvous event"]
    assert isinstance(events.get_logging_handler(), logging.NullHandler)
    with pytest.raises(ValueError, match="unknown destination"):
        events.get_logging_handler("nowhere")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_what_is_queued_when_the_process_ends_is_written() -> None:
    result = run(
        "from elastic.events import *\n"
        "for i in range(100): record(Event(f'{i}', 'AGENT'), 'console')\n"
        "raise SystemExit(3)"
    )
    assert result.returncode == 3
    assert [json.loads(line)["name"] for line in result.stderr.splitlines()] == [f"{i}" for i in range(100)]


def test_an_event_after_the_end_is_told_of_and_harms_nobody() -> None:
    result = run(
        "import atexit\n"
        "def late(): record(Event('late', 'AGENT'), 'console'); print('unharmed')\n"
        "atexit.register(late)\n"
        "from elastic.events import *\n"
        "record(Event('e', 'AGENT'), 'console')"
    )
    assert (result.returncode, result.stdout) == (0, "unharmed\n")
    line, told = result.stderr.splitlines()
    assert Event.deserialize(line).name == "e"
    assert told == "the event 'late' comes too late: this process is ending"


def test_a_forked_child_writes_its_own_events_and_none_of_its_parent(tmp_path: Path) -> None:
    # The parent forks while one destination is stuck with an event and another waits, and one is in use.
    result = run(f"""
import os, threading
from elastic import events
from elastic.events import Event
began, freed = threading.Event(), threading.Event()
class Stuck:
    def record(self, event):
        began.set(); freed.wait(); print("parent", event.name, flush=True)
events.register_event_handler("mine", Stuck())
for name in "ab": events.record(Event(name, "AGENT"), "mine")
file = "file:{tmp_path}/both.jsonl"
events.record(Event("p", "AGENT"), file)
while not os.path.getsize("{tmp_path}/both.jsonl"): threading.Event().wait(0.01)
began.wait()
child = os.fork()
if not child:
    events.record(Event("c", "AGENT"), file)
    events.close()
    os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
freed.set()
""")
    assert result.stdout.splitlines() == ["child 7", "parent a", "parent b"], result.stderr
    lines = (tmp_path / "both.jsonl").read_text().splitlines()
    assert [Event.deserialize(line).name for line in lines] == ["p", "c"]
