"""Reads the machine's CPUs, NUMA nodes and NVIDIA devices from sysfs. It changes and binds nothing."""

import os
from collections.abc import Collection
from pathlib import Path

from elastic.multiprocessing.affinity import Cpu, Topology

SYSFS = Path("/sys")

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers: what NVIDIA's driver counts


def read_topology(usable: Collection[int] | None = None, root: Path = SYSFS) -> Topology:
    """Return the usable CPUs and where devices are attached.

    Args:
        usable: The CPUs to look at; None means those that this process may run on.
        root: Where sysfs is.

    Raises:
        OSError: The system describes no CPU. What else it leaves out is taken as shared by all.
        ValueError: It describes one in a way that can't be read.
    """
    numbers = sorted(os.sched_getaffinity(0) if usable is None else usable)
    nodes = {
        number: int(path.name.removeprefix("node"))
        for path in (root / "devices/system/node").glob("node[0-9]*")
        for number in parse_cpu_list((path / "cpulist").read_text())
    }
    cpus = [
        _read_cpu(root / f"devices/system/cpu/cpu{number}", number, nodes.get(number, 0))
        for number in numbers
    ]
    return Topology(cpus=cpus, device_nodes=_read_devices(root))


def parse_cpu_list(text: str) -> list[int]:
    """Return the CPUs of a list such as ``0-3,8``.

    Raises:
        ValueError: It isn't one.
    """
    found: list[int] = []
    for item in filter(None, text.strip().split(",")):
        first, _, last = item.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _read_cpu(path: Path, number: int, node: int) -> Cpu:
    topology = path / "topology"
    siblings = parse_cpu_list((topology / "thread_siblings_list").read_text())
    return Cpu(
        number=number,
        node=node,
        socket=int((topology / "physical_package_id").read_text()),
        core=min(siblings, default=number),
        cache=_last_cache(path, node),
    )


def _last_cache(path: Path, node: int) -> int:
    """Name the last-level cache by its first CPU; a machine that describes no cache has one a node."""
    caches = [cache for cache in (path / "cache").glob("index[0-9]*") if (cache / "shared_cpu_list").exists()]
    if not caches:
        return -1 - node
    last = max(caches, key=lambda cache: int((cache / "level").read_text()))
    return min(parse_cpu_list((last / "shared_cpu_list").read_text()))


def _read_devices(root: Path) -> list[int | None]:
    """The NUMA nodes of NVIDIA devices in the order of their bus addresses, which is that of NVML."""
    found: list[int | None] = []
    for path in sorted((root / "bus/pci/devices").glob("*")):
        if _read(path / "vendor") == _NVIDIA and _read(path / "class").startswith(_DISPLAY_CLASSES):
            node = _read(path / "numa_node")  # -1 where the firmware doesn't say
            found.append(int(node) if node.isdecimal() else None)
    return found


def _read(path: Path) -> str:
    """A short file; empty if it isn't there, as of a device that has just been taken out."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
