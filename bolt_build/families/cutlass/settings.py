"""Run-time settings of compiled kernels: slices of the depth, the order in which persistent blocks take tiles, and
the length of their strips."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bolt_build.families.common.text_form import Named, Reader

_ALONG = {"m": 1, "n": 2}


@dataclass(frozen=True)
class Settings:
    """Arguments of a compiled kernel: a number of `slices` (0 for kernels that take none); the width of the bands in
    which blocks go through the tiles and the axis along which they follow each other, None for the kernel's own; the
    rows of a `strip` of the output, 0 for kernels that have none."""

    slices: int = 0
    swizzle: int | None = None
    along: str | None = None
    strip: int = 0

    @cached_property
    def named(self) -> Named:
        """As candidates state them."""
        order = (("swizzle", self.swizzle), ("along", self.along))
        found = (("slices", self.slices or None), *order, ("strip", self.strip or None))
        return tuple((name, value) for name, value in found if value is not None)

    @classmethod
    def read(cls, named: Named) -> Settings:
        """The inverse of `named`. Raises ValueError."""
        reader = Reader(named)
        slices = reader.number("slices") if reader.has("slices") else 0
        swizzle = reader.number("swizzle") if reader.has("swizzle") else None
        along = reader.word("along", {axis: axis for axis in _ALONG}) if reader.has("along") else None
        strip = reader.number("strip") if reader.has("strip") else 0
        reader.end()
        return cls(slices, swizzle, along, strip)

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Fields of the kernel's C++ arguments."""
        along = None if self.along is None else _ALONG[self.along]
        order = (("swizzle", self.swizzle), ("along", along))
        found = (("slices", self.slices or None), *order, ("strip", self.strip or None))
        return tuple((name, value) for name, value in found if value is not None)


DEFAULT = Settings()
"""Those of a kernel that is given none."""
