"""What a device uses of energy while another process runs on it: a counter, read again and again."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from bolt_build.bench.device.cuda import Driver
from bolt_build.bench.device.nvml import NO_NVML, Nvml, open_nvml

Counter = Callable[[], float | None]
"""Joules from some start; None where there is no figure just now."""

_EVERY = 0.02
LEAST_SECONDS = 0.5
"""GPUs bring their counts up to date some ten times a second: over less than this they say little."""
POWERCAP = Path("/sys/class/powercap")


def gpu_counter(driver: Any = None, load: Any = ctypes.CDLL) -> Counter | str:
    """Of the GPU that CUDA calls the first, or why there is none. No context is made on it."""
    try:
        call = Driver(driver if driver is not None else ctypes.CDLL("libcuda.so.1")).call
        device, address = ctypes.c_int(0), ctypes.create_string_buffer(64)
        call("cuInit", ctypes.c_uint(0))
        call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        call("cuDeviceGetPCIBusId", address, ctypes.c_int(len(address)), device)
    except OSError as error:
        return NO_NVML.format(error)
    found = open_nvml(address.value.decode(), load)
    if not isinstance(found, Nvml):
        return found
    return found.joules if found.joules() is not None else NO_NVML.format("this GPU does not count energy")


def cpu_counter(powercap: Path = POWERCAP) -> Counter | str:
    """Of all packages of the CPU (RAPL, https://docs.kernel.org/power/powercap/powercap.html), or why there is none."""
    zones = sorted(each for each in powercap.glob("intel-rapl:*") if each.name.count(":") == 1)
    if not zones:
        return f"no energy: {powercap} has no counter of this CPU"
    try:
        packages = [_Package(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text())) for zone in zones]
        for package in packages:
            package.joules()
    except (OSError, ValueError) as error:
        return f"no energy: {error}"
    return lambda: sum(package.joules() for package in packages)


@dataclass
class _Package:
    """A counter that begins again at 0 behind `most` microjoules."""

    path: Path
    most: int
    _last: int = 0
    _rounds: int = 0

    def joules(self) -> float:
        now = int(self.path.read_text())
        self._rounds += now < self._last
        self._last = now
        return (self._rounds * self.most + now) / 1e6


@dataclass
class EnergyLog:
    """Reads a counter while it is entered. Times are those of the system's monotonic clock, in seconds."""

    counter: Counter
    clock: Callable[[], float] = time.monotonic
    _read: list[tuple[float, float]] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> EnergyLog:
        self._thread = threading.Thread(target=self._log, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self._note()

    def between(self, began: float, ended: float) -> float | None:
        """Joules from one moment to another; None where they are too near to each other, or were not both seen."""
        first, last = at(self._read, began), at(self._read, ended)
        if ended - began < LEAST_SECONDS or first is None or last is None:
            return None
        return last - first

    def _log(self) -> None:
        while not self._done.wait(_EVERY):
            self._note()

    def _note(self) -> None:
        try:
            joules = self.counter()
        except (OSError, ValueError):
            return
        if joules is not None:
            self._read.append((self.clock(), joules))


def at(read: Sequence[tuple[float, float]], moment: float) -> float | None:
    """What the counter had then, in a straight line between two readings; None outside of them."""
    for (before, low), (after, high) in itertools.pairwise(read):
        if before <= moment <= after:
            part = (moment - before) / (after - before) if after > before else 0.0
            return low + part * (high - low)
    return None
