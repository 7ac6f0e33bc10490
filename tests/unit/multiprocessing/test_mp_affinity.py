"""Which CPUs a worker gets, on machines that are described but not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from elastic.multiprocessing.affinity import AffinityMode, Cpu, Topology, device_of_ranks, plan
from elastic.multiprocessing.topology import parse_cpu_list, read_topology


def ranges(text: str) -> frozenset[int]:
    return frozenset(parse_cpu_list(text))


def machine(
    *,
    nodes: int = 2,
    cores: int = 4,
    per_socket: int = 1,
    per_cache: int = 2,
    devices: Sequence[int | None] = (),
) -> Topology:
    """Nodes of some cores with two threads each; the second threads are numbered after all first ones."""
    total = nodes * cores
    cpus = [
        Cpu(
            number=core + thread * total,
            node=core // cores,
            socket=core // cores // per_socket,
            core=core,
            cache=core - core % per_cache,
        )
        for thread in range(2)
        for core in range(total)
    ]
    return Topology(cpus=cpus, device_nodes=devices)


CASES: list[tuple[Topology, str, int, list[str]]] = [
    (machine(), "node", 2, ["0-3,8-11", "4-7,12-15"]),
    (machine(), "node", 4, ["0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"]),
    (machine(), "node", 3, ["0-3,8-11", "0-3,8-11", "4-7,12-15"]),
    (machine(), "node", 1, ["0-3,8-11"]),
    (machine(nodes=4, cores=1, per_socket=2, per_cache=1), "socket", 2, ["0,1,4,5", "2,3,6,7"]),
    (machine(), "exclusive", 4, ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]),
    (machine(nodes=1), "exclusive", 3, ["0,4", "1,5", "2-3,6-7"]),
    (machine(), "core-complex", 4, ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]),
    (machine(nodes=1), "core-complex", 3, ["0-1,4-5", "2-3,6-7", "0-1,4-5"]),
    (machine(devices=[1, 1, 0]), "node", 3, ["4-7,12-15", "4-7,12-15", "0-3,8-11"]),
    (machine(devices=[None, 0]), "node", 2, ["0-3,8-11", "0-3,8-11"]),
    (machine(devices=[9]), "node", 2, ["0-3,8-11", "4-7,12-15"]),
]


@pytest.mark.parametrize(("topology", "mode", "nprocs", "expected"), CASES)
def test_each_worker_gets_its_cpus(topology: Topology, mode: str, nprocs: int, expected: list[str]) -> None:
    got = plan(topology, AffinityMode(mode), nprocs=nprocs, devices={rank: rank for rank in range(nprocs)})
    assert got == {rank: ranges(text) for rank, text in enumerate(expected)}


@pytest.mark.parametrize("nprocs", range(1, 9))
def test_exclusive_cores_are_nobody_elses(nprocs: int) -> None:
    shares = plan(machine(), AffinityMode.EXCLUSIVE, nprocs=nprocs).values()
    assert sum(map(len, shares)) == len(frozenset().union(*shares))
    assert all(shares)


def test_what_can_not_be_divided_is_told() -> None:
    with pytest.raises(ValueError, match="NUMA node 0 has 4 usable cores for 5 workers"):
        plan(machine(nodes=1), AffinityMode.EXCLUSIVE, nprocs=5)
    with pytest.raises(ValueError, match="no usable CPU"):
        plan(Topology(cpus=()), AffinityMode.NODE, nprocs=1)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ({0: None, 1: None}, {0: 0, 1: 1}),
        ({0: "4,5", 1: "4,5"}, {0: 4, 1: 5}),
        ({0: "4,5", 1: "6,7"}, {0: 4, 1: 6}),
        ({0: "3"}, {0: 3}),
        ({0: "GPU-8c1", 1: ""}, {}),
        ({0: "1", 1: "1"}, {0: 1}),
    ],
)
def test_the_device_of_a_worker(visible: Mapping[int, str | None], expected: Mapping[int, int]) -> None:
    assert device_of_ranks(visible) == expected


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two nodes of two CPUs; CPUs 0 and 1 are threads of one core; two devices and a network card."""

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")

    write("devices/system/node/node0/cpulist", "0-1")
    write("devices/system/node/node1/cpulist", "2-3")
    for cpu, siblings in enumerate(("0-1", "0-1", "2", "3")):
        base = f"devices/system/cpu/cpu{cpu}"
        write(f"{base}/topology/thread_siblings_list", siblings)
        write(f"{base}/topology/physical_package_id", str(cpu // 2))
        write(f"{base}/cache/index0/level", "1")
        write(f"{base}/cache/index0/shared_cpu_list", siblings)
        write(f"{base}/cache/index3/level", "3")
        write(f"{base}/cache/index3/shared_cpu_list", "0-1" if cpu < 2 else "2-3")
    cards = [("0000:81:00.0", "0x10de", "0x030200", "1"), ("0000:01:00.0", "0x10de", "0x030000", "-1")]
    for address, vendor, kind, node in [*cards, ("0000:00:01.0", "0x8086", "0x020000", "0")]:
        write(f"bus/pci/devices/{address}/vendor", vendor)
        write(f"bus/pci/devices/{address}/class", kind)
        write(f"bus/pci/devices/{address}/numa_node", node)
    return tmp_path


def test_a_machine_is_read(sysfs: Path) -> None:
    assert read_topology([0, 1, 3], sysfs) == Topology(
        cpus=[
            Cpu(number=0, node=0, socket=0, core=0, cache=0),
            Cpu(number=1, node=0, socket=0, core=0, cache=0),
            Cpu(number=3, node=1, socket=1, core=3, cache=2),
        ],
        device_nodes=[None, 1],
    )


def test_a_machine_without_nodes_caches_and_buses_is_one_node(sysfs: Path) -> None:
    (sysfs / "devices/system/node").rename(sysfs / "node")
    (sysfs / "bus").rename(sysfs / "no-bus")
    for cpu in range(4):
        (sysfs / f"devices/system/cpu/cpu{cpu}/cache").rename(sysfs / f"cache{cpu}")
    topology = read_topology([0, 1, 2, 3], sysfs)
    assert {cpu.node for cpu in topology.cpus} == {0}
    assert len({cpu.cache for cpu in topology.cpus}) == 1
    assert topology.device_nodes == []


def test_a_system_that_describes_no_cpu_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="thread_siblings_list"):
        read_topology([0], tmp_path)


def test_this_machine_can_be_read() -> None:
    assert read_topology().cpus
