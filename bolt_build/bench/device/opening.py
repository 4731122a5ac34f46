"""Which device holds an engine's tensors."""

from __future__ import annotations

from bolt_build.bench.device import Device
from bolt_build.bench.device.cpu import CpuDevice
from bolt_build.bench.device.cuda import CudaDevice


def open_device(where: str) -> Device:
    """The first device whose memory is `where`. Raises OSError where there is none, ValueError for other memory."""
    if where == "cpu":
        return CpuDevice()
    if where == "cuda":
        return CudaDevice()
    raise ValueError(f"nothing is known of tensors in '{where}'")
