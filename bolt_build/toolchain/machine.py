"""Whether engines of a target run on this machine: verification then has something to ask."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.targets import Target, target_named

_MAJOR, _MINOR = 75, 76


@dataclass(frozen=True)
class FoundGpu:
    """A CUDA GPU of this machine; `sm` is its compute capability times ten."""

    name: str
    sm: int


def why_not_here(target: Target) -> str | None:
    """What keeps the target's engines from running on this machine; None where they run."""
    if target.runs_where_built:
        return None
    if target.gpu is None:
        return f"engines for {target.name} run elsewhere"
    gpus = found_gpus()
    if not gpus:
        return "this machine has no GPU that CUDA can use"
    first = gpus[0]
    same = first.sm // 10 == target.gpu.sm // 10 and first.sm >= target.gpu.sm
    if same or (target.gpu.embeds_ptx and first.sm > target.gpu.sm):
        return None
    return f"the GPU here is {first.name}, which does not run code for {target.arch}"


def without_other_gpus(names: Sequence[str]) -> tuple[str, ...]:
    """Targets by name. Where one of them is the first GPU here, those of other GPUs are left out: an H100's engine runs
    on an H200, but it was tuned for another memory. Otherwise all."""
    gpus, targets = found_gpus(), [target_named(name) for name in names]
    if not any(gpus and target.is_device(gpus[0].name) for target in targets):
        return tuple(names)
    return tuple(target.name for target in targets if target.gpu is None or target.is_device(gpus[0].name))


@functools.cache
def found_gpus() -> tuple[FoundGpu, ...]:
    """The GPUs that the CUDA driver shows, in its order; none where there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    return tuple(_gpu(cuda, index) for index in range(count.value))


def _gpu(cuda: ctypes.CDLL, index: int) -> FoundGpu:
    device, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return FoundGpu(name.value.decode(errors="replace"), 10 * major.value + minor.value)
