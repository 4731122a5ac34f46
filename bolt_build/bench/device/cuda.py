"""The first CUDA GPU, through the driver's own library: events, memory and streams without any other package.

All contestants share the device's primary context with the CUDA runtime that they use, so that streams are the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from bolt_build.bench.device import DeviceState
from bolt_build.bench.device.nvml import NO_NVML, Nvml, open_nvml
from bolt_build.graph.ir import Array

_NON_BLOCKING = 1


class Driver:
    """Calls of libcuda.so.1 that raise OSError with the driver's words."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: object) -> None:
        status = int(getattr(self._library, name)(*arguments))
        if status != 0:
            said = ctypes.c_char_p()
            self._library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(said))
            words = (said.value or b"unknown error").decode()
            raise OSError(f"{name}: {words} ({status})")


class CudaDevice:
    """Raises OSError where there is no driver, no GPU, or it refuses."""

    where = "cuda"
    queues = True

    def __init__(self, library: Any = None, nvml: Nvml | str | None = None) -> None:
        self._driver = Driver(library or ctypes.CDLL("libcuda.so.1"))
        call = self._driver.call
        device, context = ctypes.c_int(0), ctypes.c_void_p()
        call("cuInit", ctypes.c_uint(0))
        call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)
        name, address = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
        call("cuDeviceGetName", name, ctypes.c_int(len(name)), device)
        call("cuDeviceGetPCIBusId", address, ctypes.c_int(len(address)), device)
        self.name = name.value.decode(errors="replace")
        self._events = (ctypes.c_void_p(), ctypes.c_void_p())
        for event in self._events:
            call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        found = open_nvml(address.value.decode()) if nvml is None else nvml
        self._nvml = found if isinstance(found, Nvml) else None
        self.no_energy: str | None = found if isinstance(found, str) else None
        if self._nvml is not None and self._nvml.joules() is None:
            self.no_energy = NO_NVML.format("this GPU does not count energy")

    def new_stream(self) -> int:
        stream = ctypes.c_void_p()
        self._driver.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return stream.value or 0

    def buffer(self, nbytes: int) -> CudaBuffer:
        return CudaBuffer(self._driver, nbytes)

    def milliseconds(self, run: Callable[[], None], stream: int) -> float:
        begin, end = self._events
        call, on = self._driver.call, ctypes.c_void_p(stream)
        call("cuEventRecord", begin, on)
        run()
        call("cuEventRecord", end, on)
        call("cuEventSynchronize", end)
        found = ctypes.c_float()
        call("cuEventElapsedTime", ctypes.byref(found), begin, end)
        return float(found.value)

    def wait(self) -> None:
        self._driver.call("cuCtxSynchronize")

    def held_bytes(self) -> int:
        """Of the whole device: nothing else may allocate or release while a difference is taken."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    def joules(self) -> float | None:
        return self._nvml.joules() if self._nvml is not None else None

    def state(self) -> DeviceState:
        return self._nvml.state() if self._nvml is not None else DeviceState()


class CudaBuffer:
    """Device memory."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver, self._nbytes = driver, nbytes
        self._at = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(self._at), ctypes.c_size_t(max(nbytes, 1)))

    @property
    def address(self) -> int:
        return int(self._at.value)

    def fill(self, array: Array) -> None:
        stored = np.ascontiguousarray(array)
        self._check(stored.nbytes)
        self._driver.call(
            "cuMemcpyHtoD_v2", self._at, ctypes.c_void_p(stored.ctypes.data), ctypes.c_size_t(self._nbytes)
        )

    def read(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        array = np.empty(shape, dtype)
        self._check(array.nbytes)
        self._driver.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), self._at, ctypes.c_size_t(self._nbytes)
        )
        return array

    def _check(self, nbytes: int) -> None:
        if nbytes != self._nbytes:
            raise ValueError(f"{nbytes} bytes for a buffer of {self._nbytes}")
