"""The sampler for a world that changes size in the middle of an epoch.

It decides which samples this rank draws, and keeps count of what the job has trained on. It reads no data,
and exchanges nothing with other ranks: all compute the same from the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from itertools import islice
from typing import Any

from elastic.utils.data.checks import whole
from elastic.utils.data.order import shuffled
from elastic.utils.data.shares import TAILS, Tail, drawn, positions
from elastic.utils.data.world import current_place


class ElasticDistributedSampler:
    """Shares a dataset among the ranks; a job that goes on in another world goes on with the unseen samples.

        sampler = ElasticDistributedSampler(dataset)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        if checkpoint:
            sampler.load_state_dict(checkpoint["sampler"])
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                train(batch)
                sampler.advance(len(batch))
                if rank == 0 and it_is_time:
                    save({"sampler": sampler.state_dict(), ...})

    An epoch's order depends on `seed`, the epoch and the dataset's length alone, and is the same as that of
    torch's `DistributedSampler`; while the world stays the same, so are the shares. A state holds how much of
    that order the whole job has consumed, so it fits any world: each sample is drawn once in an epoch,
    whatever worlds it went through, but for the tail (below).

    What was drawn is not yet trained on: a loader draws ahead. Only the training loop knows, so it must
    tell: by `advance` after each step, or by `state_dict(consumed=...)`. What it has not told when it is
    stopped is drawn again. Ranks must make their steps together, with batches of the same size, as
    data-parallel training does.

    The tail of an epoch may not divide by the world. `tail` says what happens then:

    * ``"pad"`` (default): the first samples of the epoch's order are drawn again, at most one for each rank.
    * ``"drop"``: what is left over, less than one for each rank, is not drawn in this epoch.
    * ``"uneven"``: each sample once; some ranks draw one more than others, which a loop with collective
      operations must be ready for (torch: ``Join``).
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        start_index: int = 0,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        tail: Tail | None = None,
        start_epoch: int = 0,
    ) -> None:
        """
        Args:
            dataset: Only its length is looked at, once.
            num_replicas: How many processes share it. By default the size of torch's or tensorplay's
                default process group if it is initialised, else ``WORLD_SIZE``, else 1.
            rank: Which of them this is; by default likewise, else ``RANK``, else 0.
            start_index: How many samples all ranks together have consumed of the epoch to begin with.
            shuffle: Whether an epoch's order is a random one, or the dataset's own.
            seed: The same on all ranks, over the whole job.
            drop_last: As in torch: the same as ``tail="drop"``.
            tail: What happens to an epoch's tail.
            start_epoch: The epoch to begin with.

        Raises:
            TypeError: The dataset has no length, or a number is none.
            ValueError: A number is out of its range, or `tail` is unknown or contradicts `drop_last`.
        """
        if not isinstance(dataset, Sized):
            raise TypeError(
                f"the dataset, of type {type(dataset).__name__}, has no length: give one with __len__, "
                "or share a stream in the dataset itself"
            )
        if tail is None:
            tail = "drop" if drop_last else "pad"
        if tail not in TAILS:
            raise ValueError(f"the tail policy {tail!r} is unknown: use one of {', '.join(TAILS)}")
        if drop_last and tail != "drop":
            raise ValueError(f"drop_last=True contradicts tail={tail!r}: give only one of them")
        if num_replicas is None or rank is None:
            place = current_place()
            num_replicas = place.num_replicas if num_replicas is None else num_replicas
            rank = place.rank if rank is None else rank
        self.dataset = dataset
        self.num_replicas = whole("num_replicas", num_replicas, least=1)
        self.rank = whole("rank", rank, least=0)
        if self.rank >= self.num_replicas:
            raise ValueError(
                f"the rank is {self.rank}, but {self.num_replicas} replicas have the ranks "
                f"0 to {self.num_replicas - 1}"
            )
        self.shuffle = shuffle
        self.seed = whole("seed", seed)
        self.tail: Tail = tail
        self.epoch = whole("start_epoch", start_epoch, least=0)
        self._length = len(dataset)
        self._start = self._within("start_index", start_index)
        self._advanced = 0  # samples of this rank, trained on in the present pass

    @property
    def start_index(self) -> int:
        """How many samples of the epoch were consumed before the present pass over it."""
        return self._start

    @property
    def drop_last(self) -> bool:
        """Whether the tail is dropped."""
        return self.tail == "drop"

    @property
    def consumed(self) -> int:
        """How many samples of the epoch all ranks have trained on, as far as it was told."""
        return min(self._length, self._start + self._advanced * self.num_replicas)

    @property
    def num_samples(self) -> int:
        """How many samples this rank draws in the present pass, or in the next if there was none yet."""
        return len(self._positions())

    @property
    def total_size(self) -> int:
        """How many samples all ranks draw in that pass."""
        return drawn(self._length - self._start, replicas=self.num_replicas, tail=self.tail)

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        """Begin a pass over what is not consumed of the epoch.

        Raises:
            RuntimeError: This sampler was told that its share of the epoch is trained on.
        """
        if 0 < self.num_samples == self._advanced:
            raise RuntimeError(
                f"epoch {self.epoch} is consumed: call set_epoch({self.epoch + 1}) before the next pass"
            )
        self._start, self._advanced = self.consumed, 0
        places = self._positions()
        if not places:
            return iter(())
        if self.shuffle:
            order = shuffled(self._length, seed=self.seed + self.epoch)
            return islice(order, places.start, places.stop, places.step)
        return (place % self._length for place in places)

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch, from its start; but where it is in that epoch already, stay where it is there.

        So a loop that calls it before each pass resumes in the middle of an epoch.
        """
        epoch = whole("epoch", epoch, least=0)
        if epoch != self.epoch:
            self.epoch, self._start, self._advanced = epoch, 0, 0

    def advance(self, samples: int) -> None:
        """Tell that this rank has trained on so many more of its samples, and each other rank on as many.

        Raises:
            ValueError: This rank has not so many left in the pass; the world's number was told, perhaps.
        """
        advanced = self._advanced + whole("samples", samples, least=0)
        if advanced > self.num_samples:
            raise ValueError(
                f"{samples} samples after {self._advanced} are more than the {self.num_samples} that this "
                "rank draws: give the number of its own samples in the step, not of all ranks together"
            )
        self._advanced = advanced

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """What `load_state_dict` needs in a later world, in plain values; that of rank 0 is for all ranks.

        Args:
            consumed: How many samples of the epoch all ranks have trained on, if the caller has counted
                them itself; by default as told by `advance`. Not more than the dataset has: a padded
                tail doesn't count.
        """
        return {
            "epoch": self.epoch,
            "consumed": self.consumed if consumed is None else self._within("consumed", consumed),
            **self._identity(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in the epoch and at the place of the state, which may be of a world of any size.

        Raises:
            ValueError: The state is of another order than this sampler's (another length of the dataset, seed
                or shuffle), or none at all. The sampler is as before then.
        """
        try:
            for name, ours in self._identity().items():
                if state[name] != ours:
                    raise ValueError(
                        f"the state is of an order with {name} {state[name]!r}, but this sampler has {name} "
                        f"{ours!r}, so the place means nothing here: use the same, or start a new epoch"
                    )
            epoch = whole("epoch", state["epoch"], least=0)
            consumed = self._within("consumed", state["consumed"])
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{state!r} is no state of an ElasticDistributedSampler: give what its state_dict() returned"
            ) from error
        self.epoch, self._start, self._advanced = epoch, consumed, 0

    def _identity(self) -> dict[str, Any]:
        # What an epoch's order depends on, besides the epoch: a place in one order is none in another.
        return {"length": self._length, "seed": self.seed, "shuffle": self.shuffle}

    def _within(self, name: str, value: int) -> int:
        number = whole(name, value, least=0)
        if number > self._length:
            raise ValueError(f"{name} is {number}, but the dataset has only {self._length} samples")
        return number

    def _positions(self) -> range:
        return positions(
            self._length,
            consumed=self._start,
            replicas=self.num_replicas,
            rank=self.rank,
            tail=self.tail,
        )
