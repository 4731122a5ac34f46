"""The CPU: the process's own memory and the system's clock."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bolt_build.bench.device import DeviceState
from bolt_build.graph.ir import Array


class CpuDevice:
    where = "cpu"
    queues = False
    no_energy: str | None = "energy is only told of GPUs"

    def __init__(self) -> None:
        self.name = _cpu_name()

    def new_stream(self) -> int:
        return 0

    def buffer(self, nbytes: int) -> CpuBuffer:
        return CpuBuffer(nbytes)

    def milliseconds(self, run: Callable[[], None], stream: int) -> float:
        begun = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - begun) / 1e6

    def wait(self) -> None:
        """Nothing is ever queued."""

    def held_bytes(self) -> int:
        """The process's resident memory. Raises OSError where the system does not tell it."""
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def joules(self) -> float | None:
        return None

    def state(self) -> DeviceState:
        return DeviceState()


class CpuBuffer:
    """Aligned to 64 bytes, as engines like their ports."""

    def __init__(self, nbytes: int) -> None:
        raw = np.zeros(nbytes + 64, np.uint8)
        at = -raw.ctypes.data % 64
        self._bytes = raw[at : at + nbytes]

    @property
    def address(self) -> int:
        return int(self._bytes.ctypes.data)

    def fill(self, array: Array) -> None:
        self._bytes[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def read(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self._bytes.copy().view(dtype).reshape(shape)


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
