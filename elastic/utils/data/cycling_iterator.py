"""One stream out of many epochs, for a training loop that counts steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from elastic.utils.data.checks import whole

T = TypeVar("T")

_END = object()


class CyclingIterator(Iterator[T], Generic[T]):
    """Everything that epoch after epoch yields, in one stream.

        batches = CyclingIterator(3, lambda epoch: loader_of(epoch))

    `generator_fn(epoch)` gives an epoch's items: an iterable or iterator, a new one for each epoch. It is
    called when the first item of the epoch is asked for. The epochs are `start_epoch` to `n - 1`; without
    `n` they never end::

        batches = CyclingIterator(generator_fn=loader_of)

    `state_dict` tells the epoch and how many of its items were yielded; whoever loads it begins that epoch
    anew and passes over as many. Where the items keep their own place, as those of an
    `ElasticDistributedSampler` do, nothing must be passed over: then give the epoch to resume in as
    `start_epoch`, and load no state here.

    The epoch that it begins with may be empty, because it was finished before. An empty one after it would
    have the caller wait for ever for an item, and is an error.
    """

    def __init__(
        self,
        n: int | None = None,
        generator_fn: Callable[[int], Iterable[T]] | None = None,
        start_epoch: int = 0,
    ) -> None:
        """
        Raises:
            TypeError: There is no `generator_fn`, or another parameter is no whole number.
            ValueError: `n` or `start_epoch` is negative.
        """
        if generator_fn is None or not callable(generator_fn):
            raise TypeError(
                f"generator_fn is {generator_fn!r}: give a function that takes an epoch's number and returns "
                "its items, by name (generator_fn=...) for a stream without end"
            )
        self._n = None if n is None else whole("n", n, least=0)
        self._generator_fn = generator_fn
        self._begin(whole("start_epoch", start_epoch, least=0), 0)

    def _begin(self, epoch: int, position: int) -> None:
        self._epoch = epoch
        self._position = position
        self._first_epoch = epoch
        # Nothing is made before the first item is asked for: a state may be loaded until then.
        self._items: Iterator[T] | None = None
        self._is_over = self._n is not None and epoch >= self._n

    @property
    def epoch(self) -> int:
        """The epoch of the item that was yielded last; before the first one, that of the first."""
        return self._epoch

    def state_dict(self) -> dict[str, int]:
        """Where the stream is: ``epoch`` and ``position``, the number of its items that were yielded."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called, with the next item.

        Raises:
            ValueError: This is no state of a `CyclingIterator`.
        """
        try:
            epoch = whole("epoch", state["epoch"], least=0)
            position = whole("position", state["position"], least=0)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{dict(state)!r} is no state of a CyclingIterator: give what its state_dict() returned"
            ) from error
        self._begin(epoch, position)

    def __iter__(self) -> CyclingIterator[T]:
        return self

    def __next__(self) -> T:
        """
        Raises:
            RuntimeError: An epoch is empty, or has fewer items than were yielded of it before.
        """
        while not self._is_over:
            if self._items is None:
                self._items = self._resumed()
            item = next(self._items, _END)
            if item is not _END:
                self._position += 1
                return item  # type: ignore[return-value] # it is an item, not the end
            self._end_epoch()
        raise StopIteration

    def _resumed(self) -> Iterator[T]:
        items = iter(self._generator_fn(self._epoch))
        there = sum(1 for _ in islice(items, self._position))
        if there < self._position:
            raise RuntimeError(
                f"epoch {self._epoch} has only {there} items, but {self._position} of it were yielded: "
                "generator_fn must give the same items for the same epoch"
            )
        return items

    def _end_epoch(self) -> None:
        if self._position == 0 and self._epoch > self._first_epoch:
            raise RuntimeError(
                f"epoch {self._epoch} is empty: generator_fn must return a new iterator for each epoch, "
                "not one that is used up"
            )
        if self._n is not None and self._epoch + 1 >= self._n:
            self._is_over = True
            return
        self._epoch += 1
        self._position = 0
        self._items = None
