"""Devices as contests see them: the CPU, and a GPU behind libraries that the tests make up."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from bolt_build.bench.device import DeviceState
from bolt_build.bench.device.cpu import CpuDevice
from bolt_build.bench.device.cuda import CudaDevice
from bolt_build.bench.device.nvml import Nvml, open_nvml
from bolt_build.bench.device.opening import open_device


class FakeNvml:
    """A management library with one GPU; calls named in `failing` give status 3."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name in self.failing:
                return 3
            if name == "nvmlDeviceGetHandleByPciBusId_v2":
                assert arguments[0].value == b"0000:19:00.0"
                arguments[1]._obj.value = 0x99
            elif name != "nvmlInit_v2":
                assert arguments[0].value == 0x99
                figures = {
                    "nvmlDeviceGetTotalEnergyConsumption": 123456, "nvmlDeviceGetClockInfo": 1980,
                    "nvmlDeviceGetTemperature": 41,
                }  # fmt: skip
                arguments[-1]._obj.value = figures[name]
            return 0

        return call


class FakeDriver:
    """libcuda with one GPU of 1000 bytes; its memory is the process's own. Notes what is called."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        self.failing = failing
        self.blocks: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == self.failing:
                return 2
            getattr(self, f"_{name}", lambda *given: None)(*arguments)
            return 0

        if name.startswith("_"):
            raise AttributeError(name)
        return call

    def _cuGetErrorString(self, status: Any, said: Any) -> None:
        said._obj.value = b"out of memory"

    def _cuDeviceGetName(self, name: Any, size: Any, device: Any) -> None:
        name.value = b"Fake GPU"

    def _cuDeviceGetPCIBusId(self, address: Any, size: Any, device: Any) -> None:
        address.value = b"0000:19:00.0"

    def _cuStreamCreate(self, stream: Any, flags: Any) -> None:
        stream._obj.value = 0x77

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        assert stream.value == 0x77

    def _cuEventElapsedTime(self, found: Any, begin: Any, end: Any) -> None:
        found._obj.value = 1.25

    def _cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free._obj.value, total._obj.value = 300, 1000

    def _cuMemAlloc_v2(self, at: Any, nbytes: Any) -> None:
        self.blocks.append(ctypes.create_string_buffer(nbytes.value))
        at._obj.value = ctypes.addressof(self.blocks[-1])

    def _cuMemcpyHtoD_v2(self, to: Any, source: Any, nbytes: Any) -> None:
        ctypes.memmove(to.value, source.value, nbytes.value)

    def _cuMemcpyDtoH_v2(self, to: Any, source: Any, nbytes: Any) -> None:
        ctypes.memmove(to.value, source.value, nbytes.value)


def gpu_nvml(*failing: str) -> Nvml | str:
    return open_nvml("0000:19:00.0", lambda name: FakeNvml(*failing))


def test_energy_clock_and_temperature_of_a_gpu() -> None:
    found = gpu_nvml()
    assert isinstance(found, Nvml)
    assert found.joules() == 123.456
    assert found.state() == DeviceState(1980, 41)


def test_what_a_gpu_does_not_count_is_none() -> None:
    found = gpu_nvml("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTemperature")
    assert isinstance(found, Nvml)
    assert found.joules() is None
    assert found.state() == DeviceState(1980, None)


def test_why_there_is_no_energy_is_said() -> None:
    def not_there(name: str) -> None:
        raise OSError(f"{name}: no such file")

    assert open_nvml("0000:19:00.0", not_there) == "no energy: NVML is not there (libnvidia-ml.so.1: no such file)"
    assert gpu_nvml("nvmlInit_v2") == "no energy: NVML does not start (3)"
    assert gpu_nvml("nvmlDeviceGetHandleByPciBusId_v2") == "no energy: NVML does not know the GPU at 0000:19:00.0 (3)"
    counts_none = CudaDevice(FakeDriver(), gpu_nvml("nvmlDeviceGetTotalEnergyConsumption"))
    assert counts_none.no_energy == "no energy: this GPU does not count energy"
    assert counts_none.joules() is None
    absent = CudaDevice(FakeDriver(), "no energy: NVML is not there (gone)")
    assert (absent.no_energy, absent.joules(), absent.state()) == (
        "no energy: NVML is not there (gone)", None, DeviceState(),
    )  # fmt: skip


def test_a_gpu_times_runs_by_its_own_events_on_the_stream_of_the_run() -> None:
    driver = FakeDriver()
    gpu = CudaDevice(driver, gpu_nvml())
    assert (gpu.name, gpu.queues, gpu.no_energy) == ("Fake GPU", True, None)
    stream = gpu.new_stream()
    del driver.calls[:]
    assert gpu.milliseconds(lambda: driver.calls.append("run"), stream) == 1.25
    assert driver.calls == ["cuEventRecord", "run", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"]
    assert gpu.held_bytes() == 700
    assert gpu.joules() == 123.456


@pytest.mark.parametrize("device", [CpuDevice(), CudaDevice(FakeDriver(), "none")], ids=["cpu", "gpu"])
def test_buffers_hold_what_they_were_filled_with(device: CpuDevice | CudaDevice) -> None:
    array = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
    buffer = device.buffer(array.nbytes)
    buffer.fill(array.transpose(0, 2, 1))
    assert np.array_equal(buffer.read((2, 4, 3), array.dtype), array.transpose(0, 2, 1))
    assert buffer.address != 0


def test_a_copy_of_another_size_than_the_buffer_is_refused() -> None:
    buffer = CudaDevice(FakeDriver(), "none").buffer(8)
    with pytest.raises(ValueError, match=r"^4 bytes for a buffer of 8$"):
        buffer.fill(np.zeros(1, np.float32))


def test_what_the_driver_refuses_is_said_in_its_words() -> None:
    gpu = CudaDevice(FakeDriver("cuMemAlloc_v2"), "none")
    with pytest.raises(OSError, match=r"^cuMemAlloc_v2: out of memory \(2\)$"):
        gpu.buffer(8)


def test_memory_of_the_process_grows_with_what_it_holds() -> None:
    cpu = CpuDevice()
    before = cpu.held_bytes()
    held = np.ones(50_000_000, np.uint8)
    assert cpu.held_bytes() - before > 0.9 * held.nbytes
    assert (cpu.joules(), cpu.queues, cpu.new_stream()) == (None, False, 0)


def test_ports_on_the_cpu_are_aligned() -> None:
    assert [CpuDevice().buffer(nbytes).address % 64 for nbytes in (1, 4, 4096)] == [0, 0, 0]


def test_no_device_has_other_memory() -> None:
    with pytest.raises(ValueError, match=r"^nothing is known of tensors in 'tape'$"):
        open_device("tape")
