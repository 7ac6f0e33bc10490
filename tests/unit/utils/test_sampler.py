"""The sampler's contract, without any framework."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.utils.data import ElasticDistributedSampler as Sampler
from elastic.utils.data.order import shuffled
from elastic.utils.data.world import Place, place_in

TEN = range(10)
# What torch.randperm(10) gives with a generator seeded 5.
TENS_ORDER = [1, 4, 9, 6, 3, 5, 0, 2, 8, 7]


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("torch.distributed", "tensorplay.distributed"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def world(size: int, **options: Any) -> list[Sampler]:
    return [Sampler(TEN, size, rank, **options) for rank in range(size)]


def shares(samplers: list[Sampler]) -> list[list[int]]:
    return [list(sampler) for sampler in samplers]


def test_the_order_is_torchs_without_torch() -> None:
    order = shuffled(10, seed=5)
    assert [next(order) for _ in range(23)] == TENS_ORDER * 2 + TENS_ORDER[:3], "and again from its start"
    assert list(Sampler(TEN, seed=5)) == TENS_ORDER
    assert list(Sampler(TEN, seed=3, start_epoch=2)) == TENS_ORDER
    assert list(Sampler(TEN, seed=5 + 2**32)) == TENS_ORDER
    assert list(Sampler(TEN, shuffle=False)) == list(TEN)


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_tail(shuffle: bool) -> None:
    order = TENS_ORDER if shuffle else list(TEN)
    options: dict[str, Any] = {"seed": 5, "shuffle": shuffle}
    assert shares(world(3, **options)) == [order[0::3], order[1::3] + order[:1], order[2::3] + order[1:2]]
    assert shares(world(3, tail="drop", **options)) == [order[0:9:3], order[1:9:3], order[2:9:3]]
    assert shares(world(3, tail="uneven", **options)) == [order[0::3], order[1::3], order[2::3]]
    assert shares(world(3, drop_last=True, **options)) == shares(world(3, tail="drop", **options))


@pytest.mark.parametrize("tail", ["pad", "drop", "uneven"])
@pytest.mark.parametrize("start", [0, 4, 8, 10])
def test_its_length_is_what_it_yields_while_it_does(tail: Any, start: int) -> None:
    samplers = world(3, tail=tail, start_index=start)
    for sampler in samplers:
        length = len(sampler)
        seen = 0
        for _ in sampler:
            seen += 1
            sampler.advance(1)
            assert (len(sampler), sampler.num_samples) == (length, length)
        assert seen == length
    assert sum(map(len, samplers)) == samplers[0].total_size


def test_a_smaller_world_goes_on_with_what_is_left() -> None:
    for sampler in world(3, seed=5):
        iterator = iter(sampler)
        [next(iterator) for _ in range(3)]  # the loader has drawn ahead of training
        sampler.advance(1)
        sampler.advance(1)
        assert sampler.consumed == 6
        state = json.loads(json.dumps(sampler.state_dict()))
        assert state == {"epoch": 0, "consumed": 6, "length": 10, "seed": 5, "shuffle": True}
        resumed = world(2, seed=5)
        for other in resumed:
            other.load_state_dict(state)
        assert shares(resumed) == [TENS_ORDER[6::2], TENS_ORDER[7::2]]
        assert [other.start_index for other in resumed] == [6, 6]
    assert shares(world(2, seed=5, start_index=6)) == [TENS_ORDER[6::2], TENS_ORDER[7::2]]


def test_a_pass_that_was_broken_off_goes_on() -> None:
    sampler = Sampler(TEN, 2, 1, seed=5)
    assert next(iter(sampler)) == TENS_ORDER[1]
    sampler.advance(2)
    assert list(sampler) == TENS_ORDER[5::2]


def test_the_caller_may_count_itself() -> None:
    sampler = Sampler(TEN, 4, 0)
    assert sampler.state_dict(consumed=9)["consumed"] == 9
    assert sampler.consumed == 0, "it was only asked"
    with pytest.raises(ValueError, match="consumed is 12, but the dataset has only 10 samples"):
        sampler.state_dict(consumed=12)


def test_what_a_rank_has_not_drawn_it_cannot_have_trained_on() -> None:
    sampler = Sampler(TEN, 4, 0)
    sampler.advance(2)
    with pytest.raises(
        ValueError,
        match=r"2 samples after 2 are more than the 3 that this rank draws: give the number of its",
    ):
        sampler.advance(2)
    sampler.advance(1)
    assert sampler.consumed == 10, "the padding does not count"
    with pytest.raises(ValueError, match="samples is -1"):
        sampler.advance(-1)


def test_another_epoch_begins_at_its_start() -> None:
    sampler = Sampler(TEN, 2, 0, 4, seed=5)
    sampler.set_epoch(0)
    assert sampler.start_index == 4, "the loop that resumes says where it is"
    sampler.advance(1)
    sampler.set_epoch(0)
    assert sampler.consumed == 6
    sampler.set_epoch(1)
    assert (sampler.epoch, sampler.start_index, sampler.consumed, len(sampler)) == (1, 0, 0, 5)


@pytest.mark.parametrize("tail", ["pad", "drop", "uneven"])
def test_a_consumed_epoch_is_not_passed_over_in_silence(tail: Any) -> None:
    sampler = Sampler(TEN, 3, 0, tail=tail)
    sampler.advance(len(list(sampler)))
    with pytest.raises(RuntimeError, match=r"epoch 0 is consumed: call set_epoch\(1\)"):
        iter(sampler)
    sampler.set_epoch(1)
    assert list(sampler)


def test_a_job_may_resume_at_the_end_of_an_epoch() -> None:
    sampler = Sampler(TEN, 3, 0, 10)
    assert (len(sampler), list(sampler), list(sampler)) == (0, [], [])


def test_without_telling_each_pass_is_the_same() -> None:
    sampler = Sampler(TEN, 3, 1, 2, seed=5)
    assert list(sampler) == list(sampler) == TENS_ORDER[3::3]


def test_an_empty_dataset() -> None:
    for tail in ("pad", "drop", "uneven"):
        assert list(Sampler([], 3, 1, tail=tail)) == []
        assert list(Sampler([], 3, 1, tail=tail, shuffle=False)) == []


def test_it_can_be_handed_to_another_process() -> None:
    sampler = Sampler(TEN, 3, 1, 2, seed=5)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"length": 11}, "an order with length 11, but this sampler has length 10"),
        ({"seed": 1}, "an order with seed 1, but this sampler has seed 0"),
        ({"shuffle": False}, "an order with shuffle False, but this sampler has shuffle True"),
        ({"consumed": 11}, "consumed is 11, but the dataset has only 10"),
        ({"consumed": -1}, "consumed is -1: give 0 or more"),
        ({"epoch": "one"}, "no state of an ElasticDistributedSampler"),
    ],
)
def test_a_state_of_another_order_is_refused(change: dict[str, Any], words: str) -> None:
    sampler = Sampler(TEN, 2, 0, 4)
    state = sampler.state_dict()
    with pytest.raises(ValueError, match=words):
        sampler.load_state_dict(state | change)
    assert sampler.state_dict() == state, "and changes nothing"
    for name in state:
        with pytest.raises(ValueError, match="no state of an ElasticDistributedSampler"):
            sampler.load_state_dict({key: value for key, value in state.items() if key != name})


def test_nonsense_is_refused() -> None:
    with pytest.raises(TypeError, match="the dataset, of type generator, has no length"):
        Sampler(i for i in TEN)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the rank is 2, but 2 replicas have the ranks 0 to 1"):
        Sampler(TEN, 2, 2)
    with pytest.raises(ValueError, match="num_replicas is 0: give 1 or more"):
        Sampler(TEN, 0, 0)
    with pytest.raises(ValueError, match="start_index is 11, but the dataset has only 10"):
        Sampler(TEN, 2, 0, 11)
    with pytest.raises(TypeError, match="start_index is True: give a whole number"):
        Sampler(TEN, 2, 0, True)
    with pytest.raises(ValueError, match="the tail policy 'cut' is unknown: use one of pad, drop, uneven"):
        Sampler(TEN, tail="cut")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="drop_last=True contradicts tail='pad'"):
        Sampler(TEN, drop_last=True, tail="pad")


def test_the_world_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Sampler(TEN)
    assert (alone.num_replicas, alone.rank) == (1, 0)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    worker = Sampler(TEN)
    assert (worker.num_replicas, worker.rank) == (4, 2)
    given = Sampler(TEN, rank=1)
    assert (given.num_replicas, given.rank) == (4, 1)


def test_a_process_group_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    for name in ("tensorplay.distributed", "torch.distributed"):
        group = SimpleNamespace(
            is_initialized=lambda: False,
            get_world_size=lambda: 8,
            get_rank=lambda: 7,
        )
        monkeypatch.setitem(sys.modules, name, group)
        assert Sampler(TEN).num_replicas == 4
        group.is_initialized = lambda: True
        assert (Sampler(TEN).num_replicas, Sampler(TEN).rank) == (8, 7)
        group.is_initialized = lambda: False


def test_half_a_world_is_none() -> None:
    assert place_in({"WORLD_SIZE": "3", "RANK": "1"}) == Place(3, 1)
    with pytest.raises(
        ValueError, match="RANK is not set, so this worker's share of the samples is unknown: set"
    ):
        place_in({"WORLD_SIZE": "3"})
    with pytest.raises(ValueError, match="WORLD_SIZE is 'two', not a number"):
        place_in({"WORLD_SIZE": "two", "RANK": "0"})


def test_it_needs_and_loads_no_framework() -> None:
    program = "import sys, elastic.utils.data; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"torch", "tensorplay", "numpy", "grpc"} & set(done.stdout.split())
