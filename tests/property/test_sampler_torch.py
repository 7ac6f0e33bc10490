"""Equality with torch: its order, its shares, its data loader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.utils.data import CyclingIterator, ElasticDistributedSampler

pytestmark = pytest.mark.torch

PROFILE = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@PROFILE
@given(
    st.one_of(st.integers(1, 70), st.integers(1, 10_000)),
    st.integers(1, 64),
    st.data(),
    st.booleans(),
    st.booleans(),
    st.integers(-5, 2**62),
    st.integers(0, 9),
)
def test_in_one_world_it_is_torchs_sampler(
    length: int, replicas: int, data: st.DataObject, shuffle: bool, drop_last: bool, seed: int, epoch: int
) -> None:
    from torch.utils.data import DistributedSampler

    rank = data.draw(st.integers(0, replicas - 1))
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
    ours = ElasticDistributedSampler(range(length), replicas, rank, **options)
    theirs: Any = DistributedSampler(range(length), replicas, rank, **options)  # type: ignore[arg-type, unused-ignore]
    for sampler in (ours, theirs):
        sampler.set_epoch(epoch)
    assert list(ours) == list(theirs)
    for name in (
        "num_samples",
        "total_size",
        "num_replicas",
        "rank",
        "epoch",
        "seed",
        "shuffle",
        "drop_last",
    ):
        assert getattr(ours, name) == getattr(theirs, name)
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("length", [1, 623, 624, 625, 100_000])
@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**32, 2**63])
def test_the_order_is_torchs(length: int, seed: int) -> None:
    import torch

    source = torch.Generator().manual_seed(seed)
    assert (
        list(ElasticDistributedSampler(range(length), 1, 0, seed=seed))
        == torch.randperm(length, generator=source).tolist()
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_takes_it(workers: int) -> None:
    """With processes that draw ahead; what counts is what the loop told."""
    from torch.utils.data import DataLoader

    def loader_of(sampler: ElasticDistributedSampler) -> Any:
        options: dict[str, Any] = {"num_workers": workers, "collate_fn": list}
        return DataLoader(range(40), batch_size=3, sampler=sampler, **options)  # type: ignore[arg-type, unused-ignore]

    order = list(ElasticDistributedSampler(range(40), 1, 0))
    sampler = ElasticDistributedSampler(range(40), 4, 1)
    loader = loader_of(sampler)
    assert len(loader) == 4
    batches = iter(loader)
    assert next(batches) == order[1:13:4]
    sampler.advance(3)
    del batches
    resumed = ElasticDistributedSampler(range(40), 2, 0)
    resumed.load_state_dict(sampler.state_dict())
    trained = [sample for batch in loader_of(resumed) for sample in batch]
    assert trained == order[12::2]


def test_a_stream_of_steps_over_many_epochs() -> None:
    from torch.utils.data import DataLoader

    sampler = ElasticDistributedSampler(range(10), 2, 0, start_epoch=1, start_index=6)
    loader: Any = DataLoader(range(10), batch_size=2, sampler=sampler)  # type: ignore[arg-type, unused-ignore]

    def batches_of(epoch: int) -> Any:
        sampler.set_epoch(epoch)
        return loader

    stream = CyclingIterator(3, batches_of, sampler.epoch)
    assert [(stream.epoch, len(batch)) for batch in stream] == [(1, 2), (2, 2), (2, 2), (2, 1)]


def test_the_world_is_that_of_the_process_group(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    monkeypatch.setenv("WORLD_SIZE", "7")
    monkeypatch.setenv("RANK", "3")
    assert ElasticDistributedSampler(range(9)).num_replicas == 7
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        sampler = ElasticDistributedSampler(range(9))
        assert (sampler.num_replicas, sampler.rank) == (1, 0)
    finally:
        dist.destroy_process_group()
