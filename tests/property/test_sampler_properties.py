"""Whatever worlds an epoch goes through, each sample is drawn once in it, but for the stated tail."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.utils.data import ElasticDistributedSampler
from elastic.utils.data.shares import TAILS, Tail

PROFILE = settings(max_examples=150, deadline=None, derandomize=True, database=None)

SEEDS = st.integers(0, 2**40)
# Small ones often: there the tail is much of the epoch.
LENGTHS = st.one_of(st.integers(0, 70), st.integers(0, 10_000))


@dataclass(frozen=True, slots=True)
class World:
    """A world's size, its batches, and how many steps it made before it ended."""

    replicas: int
    batch_size: int
    steps: int


WORLDS = st.builds(World, replicas=st.integers(1, 64), batch_size=st.integers(1, 9), steps=st.integers(0, 12))


def train(world: World, state: dict[str, Any] | None, **options: Any) -> tuple[list[int], dict[str, Any]]:
    """What a world trains on before it ends, and the state that its rank 0 leaves."""
    samplers = [
        ElasticDistributedSampler(num_replicas=world.replicas, rank=r, **options)
        for r in range(world.replicas)
    ]
    for sampler in samplers:
        if state is not None:
            sampler.load_state_dict(state)
    # Each rank's loader has drawn everything before the first step, as a prefetching one may.
    drawn = [list(sampler) for sampler in samplers]
    assert [len(sampler) for sampler in samplers] == [len(mine) for mine in drawn]
    trained: list[int] = []
    for step in range(world.steps):
        batches = [mine[step * world.batch_size : (step + 1) * world.batch_size] for mine in drawn]
        for sampler, batch in zip(samplers, batches, strict=True):
            sampler.advance(len(batch))
            trained += batch
    return trained, samplers[0].state_dict()


def extra(counts: Counter[int]) -> int:
    """How often samples were drawn again."""
    return sum(count - 1 for count in counts.values())


@PROFILE
@given(
    LENGTHS, SEEDS, st.booleans(), st.sampled_from(TAILS), st.lists(WORLDS, max_size=5), st.integers(1, 64)
)
def test_each_sample_is_drawn_once_in_an_epoch(
    length: int, seed: int, shuffle: bool, tail: Tail, worlds: list[World], last: int
) -> None:
    options: dict[str, Any] = {"dataset": range(length), "seed": seed, "shuffle": shuffle, "tail": tail}
    counts: Counter[int] = Counter()
    state: dict[str, Any] | None = None
    for world in worlds:
        trained, state = train(world, state, **options)
        counts.update(trained)
    left = length - (state["consumed"] if state else 0)
    # The last world trains to the end of the epoch.
    trained, state = train(World(last, 1, -(-left // last)), state, **options)
    counts.update(trained)
    missing = length - len(counts)
    assert set(counts) <= set(range(length))
    if tail == "uneven":
        assert (missing, extra(counts)) == (0, 0)
        assert state["consumed"] == length
    elif tail == "pad":
        sizes = [world.replicas for world in worlds] + [last]
        assert missing == 0
        assert extra(counts) < max(sizes)
        assert state["consumed"] == length
    else:
        assert extra(counts) == 0
        assert missing == left % last < last


@PROFILE
@given(LENGTHS, SEEDS, st.lists(WORLDS, max_size=4), st.integers(0, 3))
def test_what_is_consumed_is_always_a_prefix_of_the_order(
    length: int, seed: int, worlds: list[World], epoch: int
) -> None:
    options: dict[str, Any] = {"dataset": range(length), "seed": seed, "tail": "uneven", "start_epoch": epoch}
    order = list(ElasticDistributedSampler(num_replicas=1, rank=0, **options))
    assert sorted(order) == list(range(length))
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for world in worlds:
        trained, state = train(world, state, **options)
        seen += trained
        assert len(seen) == state["consumed"]
        assert set(seen) == set(order[: len(seen)])


@PROFILE
@given(st.integers(0, 3000), SEEDS, st.integers(0, 5))
def test_epochs_and_seeds_differ_and_repeat(length: int, seed: int, epoch: int) -> None:
    sampler = ElasticDistributedSampler(range(length), 1, 0, length // 2, seed=seed)
    sampler.set_epoch(epoch + 1)
    order = list(sampler)
    assert order == list(ElasticDistributedSampler(range(length), 1, 0, seed=seed + epoch + 1))
    assert sorted(order) == list(range(length)), "nothing of the offset in another epoch is left"
    if length > 30:
        sampler.set_epoch(epoch)
        assert list(sampler)[:15] != order[:15]
