"""Many epochs in one stream."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator

import pytest

from elastic.utils.data import CyclingIterator


def letters(epoch: int) -> list[str]:
    return [f"{letter}{epoch}" for letter in "abc"]


def test_the_epochs_follow_one_another() -> None:
    cycling = CyclingIterator(2, letters)
    assert cycling.epoch == 0
    assert [(item, cycling.epoch) for item in cycling] == [
        *[("a0", 0), ("b0", 0), ("c0", 0)],
        *[("a1", 1), ("b1", 1), ("c1", 1)],
    ]
    assert list(cycling) == [], "it stays at its end"
    assert cycling.epoch == 1


def test_it_begins_at_an_epoch() -> None:
    assert list(CyclingIterator(3, letters, 2)) == letters(2)
    assert list(CyclingIterator(3, letters, start_epoch=3)) == [], "all of them are done"
    assert list(CyclingIterator(0, letters)) == []


def test_without_a_number_of_epochs_it_never_ends() -> None:
    cycling = CyclingIterator(generator_fn=letters, start_epoch=4)
    assert list(itertools.islice(cycling, 7)) == [*letters(4), *letters(5), "a6"]


def test_an_epoch_is_asked_for_when_its_first_item_is() -> None:
    asked: list[int] = []

    def generator(epoch: int) -> Iterator[int]:
        asked.append(epoch)
        return iter([epoch])

    cycling = CyclingIterator(3, generator)
    assert asked == []
    assert [next(cycling), next(cycling)] == [0, 1]
    assert asked == [0, 1]


@pytest.mark.parametrize("yielded", range(8))
def test_it_goes_on_where_it_was(yielded: int) -> None:
    everything = list(CyclingIterator(3, letters, 1))
    first = CyclingIterator(3, letters, 1)
    before = list(itertools.islice(first, yielded))
    state = json.loads(json.dumps(first.state_dict()))
    second = CyclingIterator(3, letters)
    second.load_state_dict(state)
    assert second.epoch == first.epoch
    assert second.state_dict() == state
    assert before + list(second) == everything


def test_a_state_is_loaded_in_the_middle_too() -> None:
    cycling = CyclingIterator(3, letters)
    next(cycling)
    cycling.load_state_dict({"epoch": 2, "position": 1})
    assert list(cycling) == ["b2", "c2"]


@pytest.mark.parametrize("n", [2, 10**9, None])
def test_a_used_up_iterator_is_seen(n: int | None) -> None:
    once = iter([1, 2])
    cycling = CyclingIterator(n, lambda epoch: once)
    with pytest.raises(RuntimeError, match="epoch 1 is empty: generator_fn must return a new iterator"):
        list(cycling)


def test_the_first_epoch_may_have_been_finished_before() -> None:
    cycling = CyclingIterator(3, lambda epoch: [] if epoch == 1 else letters(epoch), 1)
    assert list(cycling) == letters(2)
    with pytest.raises(RuntimeError, match="epoch 1 is empty"):
        list(CyclingIterator(3, lambda epoch: [] if epoch == 1 else letters(epoch)))


def test_short_epochs_need_no_deep_stack() -> None:
    epochs = 3 * sys.getrecursionlimit()
    assert sum(1 for _ in CyclingIterator(epochs, lambda epoch: [epoch])) == epochs


def test_a_shorter_epoch_than_before_is_an_error() -> None:
    cycling = CyclingIterator(3, letters)
    cycling.load_state_dict({"epoch": 1, "position": 4})
    with pytest.raises(RuntimeError, match="epoch 1 has only 3 items, but 4 of it were yielded"):
        next(cycling)


def test_an_error_of_the_items_passes() -> None:
    def generator(epoch: int) -> Iterator[int]:
        yield epoch
        raise OSError("the disk is gone")

    cycling = CyclingIterator(2, generator)
    assert next(cycling) == 0
    with pytest.raises(OSError, match="the disk is gone"):
        next(cycling)


def test_nonsense_is_refused() -> None:
    with pytest.raises(TypeError, match=r"generator_fn is None: give a function .*\(generator_fn=\.\.\.\)"):
        CyclingIterator(letters)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"generator_fn is \[1\]"):
        CyclingIterator(2, [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n is -1: give 0 or more"):
        CyclingIterator(-1, letters)
    with pytest.raises(TypeError, match=r"start_epoch is 1\.5: give a whole number"):
        CyclingIterator(2, letters, 1.5)  # type: ignore[arg-type]
    for state in ({}, {"epoch": 1}, {"epoch": "1", "position": 0}):
        with pytest.raises(ValueError, match="no state of a CyclingIterator"):
            CyclingIterator(2, letters).load_state_dict(state)
