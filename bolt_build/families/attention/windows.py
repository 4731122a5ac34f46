"""Kernels of WGMMA whose blocks go through many small images: windows that share a mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from bolt_build.families.attention.kind import (
    OPERATIONS,
    WARPGROUPS,
    Kind,
    Load,
    Steps,
    gpu_of,
    mask_clocks,
    registers_beside,
    seconds_of,
)
from bolt_build.families.attention.shape import SPACE, Shape, aligned, boxed
from bolt_build.families.common.numbered import Numbered
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_ROWS = 64
"""Queries of a block."""
_OTHERS, _UNMASKED = 16, 8
"""Registers of a thread beside its mask, scores and results, and more where there is no mask: those that nvcc took."""
_MOST = 6
"""Most blocks that a multiprocessor should have."""
_LEAST = 2
"""Images that a block has at least: for fewer nothing is gained."""


@dataclass(frozen=True)
class WindowsTile(Numbered):
    """All queries and all `keys` of a head, of one image after the other that have the same mask: that stays in
    registers, and the next image is copied meanwhile. `blocks` have room on a multiprocessor, as many as there is room
    for: that bounds the registers of a thread."""

    kind: ClassVar[str] = "windows"

    keys: int
    blocks: int

    def __str__(self) -> str:
        return f"{_ROWS}x{self.keys} of images in turn, {self.blocks} blocks beside each other"

    def _registers(self, shape: Shape) -> int:
        """Mask, scores and results in fp32."""
        own = self.keys if shape.mask else self.keys // 2 + _UNMASKED
        return own + shape.of_heads[1] // 2 + _OTHERS

    def room(self) -> int:
        """Registers that a thread may have."""
        return min(255, registers_beside(1, self.blocks))

    def shared_bytes(self, shape: Shape) -> int:
        """Two images' queries, keys and values, and results: `Windows` of windows_kernel.h."""
        deep, wide = map(boxed, shape.of_heads)
        image = (
            aligned(2 * _ROWS * deep, 1024) + aligned(2 * self.keys * deep, 1024) + aligned(2 * self.keys * wide, 1024)
        )
        return 2 * image + 2 * _ROWS * (shape.of_heads[1] + 8) + 32

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        if (registers := self._registers(shape)) > self.room():
            return Reason(
                "takes {} registers of a thread, there are {} for {} blocks", registers, self.room(), self.blocks
            )
        if (shared := self.shared_bytes(shape)) > gpu.shared_memory:
            return Reason("takes {} bytes of shared memory, a block has {}", shared, gpu.shared_memory)
        # The system takes 1 KiB of a block.
        most = min((gpu.shared_memory + 1024) // (shared + 1024), _MOST)
        most = max(n for n in range(1, most + 1) if n == 1 or registers <= WindowsTile(self.keys, n).room())
        if self.blocks != most:
            return Reason("is for {} blocks on a multiprocessor, there is room for {}", self.blocks, most)
        if (images := self._images(shape, gpu)) < _LEAST:
            return Reason("goes through {} images of one mask or more, a block would have {}", _LEAST, images)
        return None

    def _turns(self, shape: Shape, gpu: Gpu) -> int:
        """Blocks for each mask of a head: as many as all multiprocessors hold at once."""
        masks = shape.masks * shape.heads
        return max(1, min(self.blocks * gpu.sms // masks, shape.batch // shape.masks))

    def _images(self, shape: Shape, gpu: Gpu) -> int:
        return ceil(shape.batch // shape.masks / self._turns(shape, gpu))

    def seconds(self, shape: Shape, target: Target) -> float:
        gpu, (deep, wide) = gpu_of(target), shape.of_heads
        scores = _ROWS * self.keys
        read = 2 * (_ROWS * deep + self.keys * (deep + wide))
        images = self._images(shape, gpu)
        products, copied = 2 * scores * (deep + wide), 2 * self.keys * (deep + wide)
        others, masked = OPERATIONS * scores + 2 * _ROWS * wide, mask_clocks(shape, scores) / images
        load = Load(128, self.room(), self.shared_bytes(shape), scores, others, products, read, copied, masked)
        blocks = shape.masks * shape.heads * self._turns(shape, gpu)
        return seconds_of(shape, load, blocks, Steps(images, images), 1.0, WARPGROUPS, target)

    def flops(self, shape: Shape) -> int:
        return 2 * shape.pairs * _ROWS * self.keys * sum(shape.of_heads)

    def cxx(self, shape: Shape) -> str:
        """`bolt::attention::WindowsTile<32, 32, 64, 4, 8>`"""
        sizes = (shape.depth, shape.columns, self.keys, self.blocks, shape.widths[2])
        return f"{SPACE}::WindowsTile<{', '.join(map(str, sizes))}{shape.element}>"


def tiles(shape: Shape) -> Iterator[WindowsTile]:
    """The tiles that may be some for a problem: of all keys."""
    for blocks in range(1, _MOST + 1):
        yield WindowsTile(aligned(shape.keys), blocks)


def _serves(shape: Shape, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "the GPU has no WGMMA"
    if shape.widths != (8, 8, 8):
        return Reason("copies heads of whole 16 bytes, not of {} and {} elements", shape.depth, shape.columns)
    if shape.counted:
        return "has no kernel that counts keys"
    if shape.window or shape.capped:
        return "has images of which each query reads all keys, and scores without a cap"
    if shape.queries > _ROWS or shape.keys > 2 * _ROWS:
        most = (_ROWS, 2 * _ROWS, shape.queries, shape.keys)
        return Reason("has images of at most {} queries and {} keys, not of {} and {}", *most)
    return None


KIND = Kind("windows", _serves, tiles, WindowsTile.read)
