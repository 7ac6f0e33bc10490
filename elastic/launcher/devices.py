"""Which devices an agent has, and which of them each of its workers sees.

Pure. A device is written as the variable that hides devices writes it: an index, or a name that
begins with ``GPU-`` or ``MIG-``. "None" for a list of devices means that nobody can tell: the
variable is not set, and there is no inventory of the machine.
"""

import re
from collections.abc import Sequence

from elastic.launcher.errors import UsageError

__all__ = ["default_worker_count", "selected", "shares", "visible"]


def visible(setting: str | None, installed: Sequence[str] | None) -> tuple[str, ...] | None:
    """The devices that a process sees.

    :param setting: the value of CUDA_VISIBLE_DEVICES, or of what stands for it; None if not set.
    :param installed: the names (``GPU-<uuid>``) of the machine's devices in index order, None if unknown.

    Follows the driver: the list ends before the first entry that is no device (so "-1" hides all
    that follow), a name may be cut short, and a list with a device twice shows none.
    """
    if setting is None:
        return None if installed is None else tuple(str(index) for index in range(len(installed)))
    seen: list[str] = []
    identities: list[str] = []
    for entry in setting.split(","):
        identity = _identity(entry.strip(), installed)
        if identity is None:
            break
        seen.append(entry.strip())
        identities.append(identity)
    return tuple(seen) if len(set(identities)) == len(identities) else ()


def _identity(entry: str, installed: Sequence[str] | None) -> str | None:
    """One spelling for each device, None for what is no device."""
    if entry.startswith("MIG-"):
        return entry
    if re.fullmatch("[0-9]+", entry, re.ASCII):
        if installed is None:
            return str(int(entry))
        return installed[int(entry)] if int(entry) < len(installed) else None
    if not entry.startswith("GPU-"):
        return None
    if installed is None:
        return entry
    named = [name for name in installed if name.startswith(entry)]
    return named[0] if len(named) == 1 else None


def selected(available: Sequence[str] | None, request: Sequence[str] | None) -> tuple[str, ...] | None:
    """The devices of an agent: all that it sees, or those that ``request`` picks.

    An index in ``request`` counts among the devices seen, as a worker would count them. A name is
    taken as it is.

    :raises UsageError: an index is beyond the last device, or a device is picked twice.
    """
    if request is None:
        return None if available is None else tuple(available)
    picked: list[str] = []
    for device in request:
        if not device.isdecimal() or available is None:
            picked.append(device)
        elif int(device) < len(available):
            picked.append(available[int(device)])
        else:
            raise UsageError(
                f"--devices names device {device}, and this agent sees {_counted(len(available))}; "
                "indices count from 0 among the devices seen"
            )
    if len(set(picked)) != len(picked):
        raise UsageError(f"--devices picks a device twice ({', '.join(picked)}); name each once")
    return tuple(picked)


def shares(
    available: Sequence[str] | None, local_world_size: int, *, per_rank: int | None
) -> tuple[tuple[str, ...], ...]:
    """The devices of each local rank: ``per_rank`` of its own, in order; None: all of them for each.

    Where nobody can tell what there is, the devices are taken to be 0, 1, 2 and so on.

    :raises UsageError: there are not enough.
    """
    if per_rank is None:
        return (tuple(available or ()),) * local_world_size
    needed = local_world_size * per_rank
    if available is None:
        available = [str(index) for index in range(needed)]
    if len(available) < needed:
        raise UsageError(
            f"{local_world_size} workers with {per_rank} each need {_counted(needed)}, and this agent has "
            f"{len(available)}; lower --nproc-per-node or --devices-per-rank"
        )
    return tuple(tuple(available[first : first + per_rank]) for first in range(0, needed, per_rank))


def default_worker_count(
    word: str, *, cpus: int, available: Sequence[str] | None, uncounted: bool, per_rank: int
) -> int:
    """What ``--nproc-per-node=word`` means here, for the words ``cpu``, ``gpu`` and ``auto``.

    :param uncounted: whether there are devices, and nobody can tell how many.
    :raises UsageError: ``gpu`` and no device, or fewer devices than one worker takes.
    """
    devices = available or ()
    if word == "cpu":
        return cpus
    if uncounted:
        # "auto" is not left to the CPUs here: one worker a CPU is no use on a machine with devices.
        raise UsageError(
            f"--nproc-per-node={word}, and there is nothing to count this machine's devices with; "
            'pip install "tensorplay-elastic[nvml]", or give a number'
        )
    if word == "auto" and not devices:
        return cpus
    if not devices:
        raise UsageError(
            "--nproc-per-node=gpu, and this agent sees no device; check the driver and CUDA_VISIBLE_DEVICES, "
            "or give a number or cpu"
        )
    if len(devices) < per_rank:
        raise UsageError(
            f"--devices-per-rank={per_rank} is more than this agent has ({_counted(len(devices))}); lower it"
        )
    return len(devices) // per_rank


def _counted(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"
