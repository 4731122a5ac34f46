"""The device that contestants run on: one clock, one account of memory and energy for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bolt_build.graph.ir import Array


@dataclass(frozen=True)
class DeviceState:
    """What the device says of itself at one moment: MHz of the multiprocessors, degrees Celsius; None where it says
    nothing."""

    clock_mhz: int | None = None
    celsius: int | None = None


class Buffer(Protocol):
    """Memory where the engine's ports live, for as long as the process lives."""

    @property
    def address(self) -> int: ...

    def fill(self, array: Array) -> None:
        """Copies in an array of the buffer's size in bytes."""

    def read(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A copy of the contents."""


class Device(Protocol):
    """The device of one process."""

    name: str
    where: str
    """The memory that tensors live in: "cpu" or "cuda"."""
    queues: bool
    """True where runs are queued, so that runs back to back may overlap what comes between them."""
    no_energy: str | None
    """Why no energy can be told; None where it can."""

    def new_stream(self) -> int:
        """A cudaStream_t to run on, 0 where there are none."""

    def buffer(self, nbytes: int) -> Buffer: ...

    def milliseconds(self, run: Callable[[], None], stream: int) -> float:
        """What one run takes on the device, by its own clock, nothing else being queued."""

    def wait(self) -> None:
        """Returns when all that was queued is done."""

    def held_bytes(self) -> int:
        """Memory in use: of the device, or on a CPU of this process. Differences count."""

    def joules(self) -> float | None:
        """The device's count of energy used, in joules from some start; None where there is no figure."""

    def state(self) -> DeviceState: ...
