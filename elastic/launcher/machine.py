"""What this machine has: CPUs that this process may use, and NVIDIA devices.

Adapter: reads the machine, decides nothing. NVML is asked through the optional package nvidia-ml-py;
no framework is imported, and no device is opened for work.
"""

import os
from pathlib import Path

from elastic.launcher.errors import UsageError

__all__ = ["has_device_files", "installed_devices", "usable_cpus"]


def usable_cpus() -> int:
    """CPUs that this process may run on, at least 1."""
    return len(os.sched_getaffinity(0))


def installed_devices() -> tuple[str, ...] | None:
    """The names of the NVIDIA devices in index order, None where there is no NVML or no driver to ask.

    NVML does not look at CUDA_VISIBLE_DEVICES, which hides devices from CUDA alone; NVIDIA_VISIBLE_DEVICES
    has done its work before this process was started: a container holds only the devices that it was given.

    :raises UsageError: the driver is there and does not answer; the text says why.
    """
    try:
        import pynvml  # noqa: PLC0415 (optional)
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return None
    except pynvml.NVMLError as error:
        raise UsageError(f"the NVIDIA driver does not answer ({error}); check it with nvidia-smi") from error
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return tuple(pynvml.nvmlDeviceGetUUID(handle) for handle in handles)
    except pynvml.NVMLError as error:
        raise UsageError(f"the NVIDIA driver does not answer ({error}); check it with nvidia-smi") from error
    finally:
        pynvml.nvmlShutdown()


def has_device_files(directory: Path = Path("/dev")) -> bool:
    """Whether there are NVIDIA devices, which nobody needs a library to see."""
    return any(directory.glob("nvidia[0-9]*"))
