"""Run-time settings of compiled kernels: slices of the depth, and the order in which persistent blocks take tiles."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.common.text_form import Named, Reader

_ALONG = {"m": 1, "n": 2}


@dataclass(frozen=True)
class Settings:
    """Arguments of a compiled kernel: a number of `slices` (0 for kernels that take none); the width of the bands in
    which blocks go through the tiles and the axis along which they follow each other, None for the kernel's own."""

    slices: int = 0
    swizzle: int | None = None
    along: str | None = None

    @property
    def named(self) -> Named:
        """As candidates state them."""
        found = (("slices", self.slices or None), ("swizzle", self.swizzle), ("along", self.along))
        return tuple((name, value) for name, value in found if value is not None)

    @classmethod
    def read(cls, named: Named) -> Settings:
        """The inverse of `named`. Raises ValueError."""
        reader = Reader(named)
        slices = reader.number("slices") if reader.has("slices") else 0
        swizzle = reader.number("swizzle") if reader.has("swizzle") else None
        along = reader.word("along", {axis: axis for axis in _ALONG}) if reader.has("along") else None
        reader.end()
        return cls(slices, swizzle, along)

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        """Fields of the kernel's C++ arguments."""
        along = None if self.along is None else _ALONG[self.along]
        found = (("slices", self.slices or None), ("swizzle", self.swizzle), ("along", along))
        return tuple((name, value) for name, value in found if value is not None)
