"""What measured times depend on: the GPU, and the toolchain that its kernels were compiled with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from bolt_build.digest import UNSAID, digest


@dataclass(frozen=True)
class Device:
    """What a time depends on, of the GPU: `memory` in bytes, `power` (the limit) in watts, 0 where it is not known."""

    name: str
    sms: int
    memory: int
    power: int
    driver: str


@dataclass(frozen=True)
class TuningTools:
    """What a time depends on, of the compilation: versions, the compiler's flags, and the digest of the kernels' own
    headers, of all families together.

    `families` tells the same apart: by a family's name the digest of what its kernels include. It follows from the
    headers, so it takes part in no comparison. Locks do not have it, nor records of before it was kept.
    """

    cuda: str
    cutlass: str
    flags: str
    kernels: str
    families: tuple[tuple[str, str], ...] = field(default=(), compare=False, metadata=UNSAID)


@dataclass(frozen=True)
class Fingerprint:
    device: Device
    tools: TuningTools

    @cached_property
    def digest(self) -> str:
        return digest(replace(self, tools=replace(self.tools, families=())))
