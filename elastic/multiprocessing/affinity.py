"""Which CPUs each worker is bound to. Pure.

The machine comes in as a :class:`Topology`, which :mod:`elastic.multiprocessing.topology` reads; what
comes out is a set of CPUs for each local rank. Nothing is bound here.

A worker's home is the NUMA node of its device where that is known. Without devices the workers are spread
over the nodes in blocks, so that neighbouring ranks share a node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class AffinityMode(str, Enum):
    """How closely a worker is bound; the values are those of ``--numa-binding``."""

    NODE = "node"
    """To all CPUs of its NUMA node."""
    SOCKET = "socket"
    """To all CPUs of the socket that its NUMA node belongs to."""
    EXCLUSIVE = "exclusive"
    """To cores of its NUMA node that no other worker gets."""
    CORE_COMPLEX = "core-complex"
    """To CPUs of its NUMA node that share a last-level cache."""


@dataclass(frozen=True, slots=True)
class NumaOptions:
    """How to bind workers to CPUs.

    Args:
        affinity_mode: How closely.
        should_fall_back_if_binding_fails: Accepted for torch's sake. Workers that can't be bound always
            run unbound, after one warning.
    """

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = True


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU. ``core`` and ``cache`` name what it shares with others, by one CPU of each group."""

    number: int
    node: int
    socket: int
    core: int
    cache: int


@dataclass(frozen=True, slots=True)
class Topology:
    """The usable CPUs of a machine, and the NUMA node of each device; None where that isn't known."""

    cpus: Sequence[Cpu]
    device_nodes: Sequence[int | None] = field(default=())


def plan(
    topology: Topology, mode: AffinityMode, *, nprocs: int, devices: Mapping[int, int] | None = None
) -> dict[int, frozenset[int]]:
    """Return the CPUs of each local rank.

    Args:
        topology: The machine.
        mode: How closely to bind.
        nprocs: How many workers there are.
        devices: The device of each local rank, where it is known.

    Raises:
        ValueError: There is no such binding here; the text says why.
    """
    homes = _homes(topology, nprocs, devices or {})
    if mode is AffinityMode.NODE:
        return {
            rank: _numbers(cpu for cpu in topology.cpus if cpu.node == node) for rank, node in homes.items()
        }
    if mode is AffinityMode.SOCKET:
        sockets = {cpu.node: cpu.socket for cpu in topology.cpus}
        return {
            rank: _numbers(cpu for cpu in topology.cpus if cpu.socket == sockets[node])
            for rank, node in homes.items()
        }
    return {
        rank: cpus
        for node in sorted(set(homes.values()))
        for rank, cpus in _divide(
            [cpu for cpu in topology.cpus if cpu.node == node],
            [rank for rank, home in sorted(homes.items()) if home == node],
            mode,
        ).items()
    }


def device_of_ranks(visible: Mapping[int, str | None]) -> dict[int, int]:
    """Return the device of each local rank, given the devices that each worker is shown.

    A worker that is shown the same devices as all others takes the one at its local rank, as frameworks do;
    otherwise its first. Devices that aren't plain numbers are not known. None: it is shown all.
    """
    shares_all = len(set(visible.values())) == 1
    found: dict[int, int] = {}
    for rank, text in visible.items():
        if text is None:
            found[rank] = rank
            continue
        listed = [item.strip() for item in text.split(",")]
        index = rank if shares_all and len(visible) > 1 else 0
        if index < len(listed) and listed[index].isascii() and listed[index].isdecimal():
            found[rank] = int(listed[index])
    return found


def _homes(topology: Topology, nprocs: int, devices: Mapping[int, int]) -> dict[int, int]:
    """The NUMA node of each local rank."""
    nodes = sorted({cpu.node for cpu in topology.cpus})
    if not nodes:
        raise ValueError("no usable CPU is described")
    homes: dict[int, int] = {}
    for rank in range(nprocs):
        device = devices.get(rank, len(topology.device_nodes))
        home = topology.device_nodes[device] if device < len(topology.device_nodes) else None
        homes[rank] = nodes[rank * len(nodes) // nprocs] if home not in nodes or home is None else home
    return homes


def _divide(cpus: Sequence[Cpu], ranks: Sequence[int], mode: AffinityMode) -> dict[int, frozenset[int]]:
    """Divide the CPUs of one node among the workers that live there."""
    if mode is AffinityMode.CORE_COMPLEX:
        # The largest first: after others' share was taken away, one complex may be a remnant.
        sizes = Counter(cpu.cache for cpu in cpus)
        caches = sorted(sizes, key=lambda cache: (-sizes[cache], cache))
        return {
            rank: _numbers(cpu for cpu in cpus if cpu.cache == caches[place % len(caches)])
            for place, rank in enumerate(ranks)
        }
    cores = sorted({cpu.core for cpu in cpus})
    if len(cores) < len(ranks):
        raise ValueError(
            f"NUMA node {cpus[0].node} has {len(cores)} usable cores for {len(ranks)} workers, so that none "
            "can have one of its own"
        )
    bounds = [place * len(cores) // len(ranks) for place in range(len(ranks) + 1)]
    return {
        rank: _numbers(cpu for cpu in cpus if cpu.core in cores[bounds[place] : bounds[place + 1]])
        for place, rank in enumerate(ranks)
    }


def _numbers(cpus: Iterable[Cpu]) -> frozenset[int]:
    return frozenset(cpu.number for cpu in cpus)
