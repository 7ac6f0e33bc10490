"""Devices of an agent and of its workers, from values alone: no device is needed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.launcher.devices import default_worker_count, selected, shares, visible
from elastic.launcher.errors import UsageError
from elastic.launcher.workers import device_variables, thread_count

FOUR = ("GPU-a0", "GPU-a1", "GPU-b2", "GPU-c3")


@pytest.mark.parametrize(
    ("setting", "installed", "seen"),
    [
        (None, None, None),
        (None, FOUR, ("0", "1", "2", "3")),
        (None, (), ()),
        ("", FOUR, ()),
        ("2,0", FOUR, ("2", "0")),
        (" 1 , 3", FOUR, ("1", "3")),
        ("0,-1,2", FOUR, ("0",)),
        ("-1", FOUR, ()),
        ("0,4,1", FOUR, ("0",)),
        ("0,4,1", None, ("0", "4", "1")),
        ("0,x,1", None, ("0",)),
        ("0,0", FOUR, ()),
        ("0,00", None, ()),
        ("GPU-b,GPU-c3", FOUR, ("GPU-b", "GPU-c3")),
        ("GPU-a,GPU-c3", FOUR, ()),
        ("GPU-z", FOUR, ()),
        ("GPU-z", None, ("GPU-z",)),
        ("0,GPU-a0", FOUR, ()),
        ("MIG-1,MIG-2", FOUR, ("MIG-1", "MIG-2")),
    ],
)
def test_what_a_process_sees(
    setting: str | None, installed: Sequence[str] | None, seen: Sequence[str] | None
) -> None:
    assert visible(setting, installed) == seen


def test_an_agent_takes_all_that_it_sees() -> None:
    assert selected(("4", "5"), None) == ("4", "5")
    assert selected(None, None) is None


def test_indices_count_among_the_devices_seen() -> None:
    assert selected(("4", "5", "6", "7"), ("2", "0")) == ("6", "4")
    assert selected(None, ("2", "0")) == ("2", "0")
    assert selected(("4",), ("GPU-x",)) == ("GPU-x",)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="device 1, and this agent sees 1 device;"):
        selected(("4",), ("0", "1"))
    with pytest.raises(UsageError, match="twice"):
        selected(("GPU-x",), ("0", "GPU-x"))


def test_without_shares_every_worker_sees_all() -> None:
    assert shares(("4", "5"), 2, per_rank=None) == (("4", "5"), ("4", "5"))


def test_shares_that_nobody_can_check_start_at_zero() -> None:
    assert shares(None, 2, per_rank=2) == (("0", "1"), ("2", "3"))


def test_too_few_devices_are_refused() -> None:
    with pytest.raises(UsageError, match="2 workers with 2 each need 4 devices, and this agent has 3"):
        shares(("0", "1", "2"), 2, per_rank=2)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 5))
def test_no_device_belongs_to_two_workers(workers: int, per_rank: int, spare: int) -> None:
    available = [f"GPU-{index}" for index in range(workers * per_rank + spare)]
    divided = shares(available, workers, per_rank=per_rank)
    assert [len(share) for share in divided] == [per_rank] * workers
    assert [device for share in divided for device in share] == available[: workers * per_rank]


@pytest.mark.parametrize(
    ("word", "available", "per_rank", "count"),
    [
        ("cpu", FOUR, 1, 6),
        ("auto", None, 1, 6),
        ("auto", (), 1, 6),
        ("auto", FOUR, 1, 4),
        ("gpu", FOUR, 1, 4),
        ("gpu", FOUR, 2, 2),
        ("auto", FOUR, 3, 1),
    ],
)
def test_how_many_workers_a_word_means(
    word: str, available: Sequence[str] | None, per_rank: int, count: int
) -> None:
    assert (
        default_worker_count(word, cpus=6, available=available, uncounted=False, per_rank=per_rank) == count
    )


@pytest.mark.parametrize("available", [None, ()])
def test_gpu_without_a_gpu_is_refused(available: Sequence[str] | None) -> None:
    with pytest.raises(UsageError, match="sees no device"):
        default_worker_count("gpu", cpus=6, available=available, uncounted=False, per_rank=1)


@pytest.mark.parametrize("word", ["auto", "gpu"])
def test_devices_that_nobody_can_count_are_not_guessed_at(word: str) -> None:
    with pytest.raises(UsageError, match=r"tensorplay-elastic\[nvml\]"):
        default_worker_count(word, cpus=6, available=None, uncounted=True, per_rank=1)
    assert default_worker_count("cpu", cpus=6, available=None, uncounted=True, per_rank=1) == 6


def test_fewer_devices_than_one_worker_takes_are_refused() -> None:
    with pytest.raises(UsageError, match="--devices-per-rank=8"):
        default_worker_count("auto", cpus=6, available=FOUR, uncounted=False, per_rank=8)


def test_the_variables_of_a_worker() -> None:
    assert device_variables(("2", "3"), variable="HIP_VISIBLE_DEVICES", virtual=False) == {
        "HIP_VISIBLE_DEVICES": "2,3",
        "ELASTIC_DEVICES": "2,3",
    }
    assert device_variables(("2",), variable="CUDA_VISIBLE_DEVICES", virtual=True)["LOCAL_RANK"] == "0"


@pytest.mark.parametrize(
    ("environ", "workers", "cpus", "threads"),
    [
        ({}, 4, 8, 2),
        ({}, 3, 8, 2),
        ({}, 16, 8, 1),
        ({}, 1, 8, None),
        ({"OMP_NUM_THREADS": "5"}, 4, 8, None),
        ({"OMP_NUM_THREADS": ""}, 4, 8, None),
    ],
)
def test_threads_are_an_equal_part_of_the_cpus(
    environ: dict[str, str], workers: int, cpus: int, threads: int | None
) -> None:
    assert thread_count(environ, workers, cpus=cpus) == threads
