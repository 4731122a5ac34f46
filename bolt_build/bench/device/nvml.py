"""NVIDIA's management library: energy, clock and temperature of a GPU, read and never set."""

from __future__ import annotations

import ctypes
from typing import Any

from bolt_build.bench.device import DeviceState

NO_NVML = "no energy: {}"
_CLOCK_SM, _TEMPERATURE_GPU = 1, 0


class Nvml:
    """One GPU. Counts that the GPU does not keep are None."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    def joules(self) -> float | None:
        """Energy since the driver was loaded; the GPU brings its count up to date some ten times a second."""
        millijoules = ctypes.c_ulonglong()
        status = self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(millijoules))
        return millijoules.value / 1e3 if status == 0 else None

    def state(self) -> DeviceState:
        clock, celsius = ctypes.c_uint(), ctypes.c_uint()
        told = self._library.nvmlDeviceGetClockInfo(self._handle, _CLOCK_SM, ctypes.byref(clock)) == 0
        felt = self._library.nvmlDeviceGetTemperature(self._handle, _TEMPERATURE_GPU, ctypes.byref(celsius)) == 0
        return DeviceState(clock.value if told else None, celsius.value if felt else None)


def open_nvml(pci_address: str, load: Any = ctypes.CDLL) -> Nvml | str:
    """The GPU at `pci_address` ("0000:19:00.0"), or why there are no figures of it."""
    try:
        library = load("libnvidia-ml.so.1")
    except OSError as error:
        return NO_NVML.format(f"NVML is not there ({error})")
    status = library.nvmlInit_v2()
    if status != 0:
        return NO_NVML.format(f"NVML does not start ({status})")
    handle = ctypes.c_void_p()
    status = library.nvmlDeviceGetHandleByPciBusId_v2(ctypes.c_char_p(pci_address.encode()), ctypes.byref(handle))
    if status != 0:
        return NO_NVML.format(f"NVML does not know the GPU at {pci_address} ({status})")
    return Nvml(library, handle)
