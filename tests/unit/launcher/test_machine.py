"""What the machine has. The driver is the one part that few machines have: a stand-in takes its place."""

import os
import sys
import types
from pathlib import Path

import pytest

from elastic.launcher.errors import UsageError
from elastic.launcher.machine import has_device_files, installed_devices, usable_cpus


class Driver(types.ModuleType):
    """The part of NVML's Python binding that is used, over a list of devices."""

    class NVMLError(Exception):
        pass

    class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801 (the binding's name)
        pass

    class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801 (the binding's name)
        pass

    def __init__(self, devices: list[str], *, at_start: Exception | None = None) -> None:
        super().__init__("pynvml")
        self.devices = devices
        self.at_start = at_start
        self.users = 0

    def nvmlInit(self) -> None:
        if self.at_start is not None:
            raise self.at_start
        self.users += 1

    def nvmlShutdown(self) -> None:
        self.users -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        if not self.devices[handle]:
            raise self.NVMLError("GPU is lost")
        return self.devices[handle]


def devices_of(monkeypatch: pytest.MonkeyPatch, driver: Driver | None) -> tuple[str, ...] | None:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    try:
        return installed_devices()
    finally:
        assert driver is None or driver.users == 0


def test_usable_cpus_are_those_that_the_process_may_run_on() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cpus() == len(before)


def test_devices_are_named_in_the_order_of_their_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices_of(monkeypatch, Driver(["GPU-b", "GPU-a"])) == ("GPU-b", "GPU-a")
    assert devices_of(monkeypatch, Driver([])) == ()


@pytest.mark.parametrize("error", [Driver.NVMLError_LibraryNotFound(), Driver.NVMLError_DriverNotLoaded()])
def test_without_a_driver_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    assert devices_of(monkeypatch, Driver([], at_start=error)) is None


def test_without_the_package_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices_of(monkeypatch, None) is None


@pytest.mark.parametrize(
    "driver", [Driver([], at_start=Driver.NVMLError("version mismatch")), Driver(["GPU-a", ""])]
)
def test_a_driver_that_does_not_answer_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    with pytest.raises(UsageError, match=r"does not answer \((version mismatch|GPU is lost)\)"):
        devices_of(monkeypatch, driver)


def test_device_files(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert not has_device_files(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert has_device_files(tmp_path)
