"""The server's data without a server: time is a number here, and connections are numbers too."""

from __future__ import annotations

import pytest

from elastic.store.board import Board
from elastic.store.limits import Limits
from elastic.store.messages import Answer, Garbled, Op, Outcome, Request
from elastic.store.replays import Replays

ME, YOU = b"me", b"you"


class Desk:
    """Asks a board, and numbers the writes of each client."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.board = Board(limits or Limits())
        self.now = 0.0
        self.writes = 0
        self.asked = 0

    def ask(self, op: Op, *fields: bytes, who: int = 1, wait: int = 0) -> Answer | None:
        self.asked += 1
        return self.board.handle(who, ME, Request(self.asked, op, fields, wait=wait), now=self.now)

    def write(self, op: Op, *fields: bytes, client: bytes = ME, again: int = 0, floor: int = 0) -> Answer:
        self.asked += 1
        self.writes += not again
        request = Request(self.asked, op, fields, write=again or self.writes, floor=floor or 1)
        answer = self.board.handle(9, client, request, now=self.now)
        assert answer is not None
        return answer

    def due(self) -> list[tuple[int, Outcome, tuple[bytes, ...]]]:
        return [(who, answer.outcome, answer.fields) for who, answer in self.board.take_due(now=self.now)]


def test_a_wait_is_answered_when_its_last_key_comes() -> None:
    desk = Desk()
    assert desk.ask(Op.GET, b"b", b"a", b"b", wait=1000) is None
    desk.write(Op.SET, b"a", b"1")
    assert desk.due() == []
    desk.write(Op.SET, b"b", b"2")
    assert desk.due() == [(1, Outcome.DONE, (b"2", b"1", b"2"))]
    assert desk.ask(Op.CHECK, b"a") is not None  # the connection is free for another question


def test_a_wait_ends_at_its_time_and_names_what_is_missing() -> None:
    desk = Desk()
    desk.write(Op.SET, b"a", b"1")
    assert desk.ask(Op.WAIT, b"c", b"a", b"b", wait=1500) is None
    assert desk.board.next_deadline() == 1.5
    desk.now = 1.4
    assert desk.due() == []
    desk.now = 1.5
    assert desk.due() == [(1, Outcome.TIMED_OUT, (b"b", b"c"))]
    assert desk.board.next_deadline() is None


def test_a_wait_of_no_time_is_answered_at_once() -> None:
    answer = Desk().ask(Op.WAIT, b"a")
    assert answer is not None
    assert (answer.outcome, answer.fields) == (Outcome.TIMED_OUT, (b"a",))


def test_who_has_gone_is_not_answered() -> None:
    desk = Desk()
    assert desk.ask(Op.WAIT_CHANGE, b"a", wait=1000) is None
    desk.board.forget(1)
    desk.board.forget(1)
    desk.write(Op.SET, b"a", b"1")
    desk.now = 5
    assert desk.due() == []


def test_an_old_time_does_not_end_a_new_wait() -> None:
    desk = Desk()
    assert desk.ask(Op.WAIT, b"a", wait=1000) is None
    desk.write(Op.SET, b"a", b"1")
    assert len(desk.due()) == 1
    assert desk.ask(Op.WAIT, b"b", wait=5000) is None
    desk.now = 1.0
    assert desk.due() == []
    desk.write(Op.SET, b"b", b"1")
    assert desk.due() == [(1, Outcome.DONE, ())]


def test_times_of_waits_that_were_answered_do_not_pile_up() -> None:
    desk = Desk()
    for number in range(1000):
        key = b"%d" % number
        assert desk.ask(Op.WAIT, key, wait=10**9) is None
        desk.write(Op.SET, key, b"")
    assert len(desk.board._deadlines) < 100


def test_a_connection_that_waits_may_only_ping() -> None:
    desk = Desk()
    assert desk.ask(Op.WAIT, b"a", wait=1000) is None
    assert desk.ask(Op.PING) is not None
    for op in (Op.CHECK, Op.WAIT, Op.COUNT):
        with pytest.raises(Garbled, match="while another one waits"):
            desk.ask(op, b"a", wait=1000)


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        (Op.SET, ()),
        (Op.SET, (b"a",)),
        (Op.DELETE, ()),
        (Op.COMPARE_SET, (b"a", b"b")),
        (Op.APPEND, (b"a",)),
        (Op.ADD, (b"a", b"one")),
        (Op.ADD, (b"a", b"9" * 5000)),
    ],
)
def test_a_write_of_the_wrong_form_is_garbled(op: Op, fields: tuple[bytes, ...]) -> None:
    with pytest.raises(Garbled):
        Desk().write(op, *fields)


@pytest.mark.parametrize(
    ("op", "fields"), [(Op.PEEK, ()), (Op.WAIT_CHANGE, ()), (Op.WAIT_CHANGE, (b"",) * 3)]
)
def test_a_question_of_the_wrong_form_is_garbled(op: Op, fields: tuple[bytes, ...]) -> None:
    with pytest.raises(Garbled):
        Desk().ask(op, *fields)


# -- once only --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "fields", "value"),
    [
        (Op.ADD, (b"a", b"5"), b"6"),
        (Op.APPEND, (b"a", b"x"), b"1x"),
        (Op.COMPARE_SET, (b"a", b"1", b"2"), b"2"),
    ],
)
def test_a_write_that_comes_again_is_answered_alike_and_not_done(
    op: Op, fields: tuple[bytes, ...], value: bytes
) -> None:
    desk = Desk()
    desk.write(Op.SET, b"a", b"1")
    first = desk.write(op, *fields)
    again = desk.write(op, *fields, again=2)
    assert (again.outcome, again.fields) == (first.outcome, first.fields)
    assert again.number != first.number
    peeked = desk.ask(Op.PEEK, b"a")
    assert peeked is not None
    assert peeked.fields == (value,)


def test_a_set_that_comes_again_does_not_undo_what_came_after() -> None:
    desk = Desk()
    desk.write(Op.SET, b"a", b"old")
    desk.write(Op.SET, b"a", b"new", client=YOU)
    desk.write(Op.SET, b"a", b"old", again=1)
    peeked = desk.ask(Op.PEEK, b"a")
    assert peeked is not None
    assert peeked.fields == (b"new",)


def test_a_write_after_its_answer_was_taken_is_refused() -> None:
    desk = Desk()
    desk.write(Op.ADD, b"n", b"1")
    desk.write(Op.ADD, b"n", b"1", floor=2)
    late = desk.write(Op.ADD, b"n", b"1", again=1)
    assert late.outcome is Outcome.FAILED
    assert desk.write(Op.ADD, b"n", b"0").fields == (b"2",)


def test_the_same_number_of_another_client_is_another_write() -> None:
    desk = Desk()
    desk.write(Op.ADD, b"n", b"1")
    assert desk.write(Op.ADD, b"n", b"1", client=YOU, again=1).fields == (b"2",)


def test_what_is_remembered_is_bounded() -> None:
    replays = Replays(entries=10, size=100)
    for write in range(1, 1000):
        replays.remember(b"%d" % (write % 50), write, Answer(0, Outcome.DONE, (b"x" * 30,)))
    assert len(replays) == 3
    assert replays.find(b"%d" % (999 % 50), 999) is not None
    for client in range(1000):
        replays.raise_floor(b"%d" % client, 2**62)
        replays.remember(b"%d" % client, 2**62, Answer(0, Outcome.DONE))
    assert len(replays) == 10
    assert len(replays._clients) == 10


# -- limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((b"k" * 11, b""), "has 11 bytes; at most 10"),
        ((b"a", b"v" * 21), "key 'a' has 21 bytes; at most 20"),
        ((b"a", b"1", b"b", b"", b"c", b"", b"d", b""), "at most 3 are allowed"),
        ((b"a", b"v" * 20, b"b", b"v" * 20, b"c", b"v" * 20), "would hold 63 bytes; at most 50"),
    ],
)
def test_what_is_too_much_is_refused_and_nothing_of_it_done(fields: tuple[bytes, ...], reason: str) -> None:
    desk = Desk(Limits(key=10, value=20, keys=3, total=50))
    answer = desk.write(Op.SET, *fields)
    assert answer.outcome is Outcome.FAILED
    assert reason in answer.fields[0].decode()
    count = desk.ask(Op.COUNT)
    assert count is not None
    assert count.fields == (b"0",)


def test_room_that_is_given_back_can_be_used_again() -> None:
    desk = Desk(Limits(keys=2, total=12))
    for round_ in range(20):
        for key in (b"a", b"b"):
            assert desk.write(Op.SET, key, b"12345").outcome is Outcome.DONE, round_
        assert desk.write(Op.APPEND, b"a", b"6").outcome is Outcome.FAILED
        assert desk.write(Op.SET, b"c", b"").outcome is Outcome.FAILED
        for key in (b"a", b"b"):
            assert desk.write(Op.DELETE, key).fields == (b"1",)


def test_an_answer_that_does_not_fit_is_refused() -> None:
    desk = Desk(Limits(frame=1024))
    for key in (b"a", b"b"):
        desk.write(Op.SET, key, b"v" * 600)
    answer = desk.ask(Op.GET, b"a", b"b")
    assert answer is not None
    assert answer.outcome is Outcome.FAILED
    assert b"at most 1024" in answer.fields[0]
