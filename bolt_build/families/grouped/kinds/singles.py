"""What tiles for filters of one channel each have in common, whatever their blocks look like."""

from __future__ import annotations

from abc import abstractmethod
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.grouped.shape import Shape, aligned, planes
from bolt_build.targets import Gpu

_BANKS = 128
"""Bytes that shared memory gives at once."""


class Singles:
    """A tile whose blocks lie side by side along the channels; weights are packed channel by channel."""

    halves: ClassVar[tuple[DType, ...]] = HALVES

    @property
    @abstractmethod
    def channels(self) -> int:
        """Channels of a block."""

    def parts(self, shape: Shape) -> int:
        """Blocks beside each other along the channels."""
        return ceil(shape.filters / self.channels)

    def flops(self, shape: Shape) -> int:
        return shape.flops_of_singles

    def weights(self, shape: Shape, gpu: Gpu) -> tuple[str, int]:
        return planes(shape, self.parts(shape) * self.channels)


def strip_pitch(channels: int, step: int) -> int:
    """Elements of shared memory for a pixel of `channels`: so many that strips which begin `step` pixels apart lie in
    different banks, where the channels of one do not fill them."""
    bytes_of_pixel = aligned(channels) * 2
    for more in range(0, _BANKS, 16):
        apart = step * (bytes_of_pixel + more) % _BANKS
        if bytes_of_pixel >= _BANKS or apart in (bytes_of_pixel, _BANKS - bytes_of_pixel):
            return (bytes_of_pixel + more) // 2
    return bytes_of_pixel // 2
