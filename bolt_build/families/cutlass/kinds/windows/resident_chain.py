"""Kernels for two products, one behind the other, on Hopper: the first's weights stay in registers, the second's in
shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.windows.resident import (
    CHANNELS,
    FUNCTION,
    STEP,
    UNIT,
    ResidentTile,
    packed,
    products_seconds,
    refuse_windows,
    speed,
    taps,
)
from bolt_build.families.cutlass.problems.product import Product, Work, aligned
from bolt_build.families.cutlass.product_chain import ProductChain
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_WIDEST = 256
"""Columns of the second product: more weights would leave shared memory no room."""
_BARRIERS = 1024
_BOXES = {True: 6, False: 4}
"""Boxes of the output at least: with a residual, which is asked for ahead, and without."""


@dataclass(frozen=True)
class ResidentChainTile:
    """`rows` by 8 pixels of the output, `steps` of 16 channels in each tap of the window, and the columns of the second
    product, whole groups of 64. Two warpgroups take tiles in turns.
    """

    rows: int
    steps: int
    n1: int

    header: ClassVar[str] = "_resident_pair"
    memory_mb: ClassVar[int] = 700
    halves: ClassVar[tuple[DType, ...]] = HALVES
    group: ClassVar[str] = "resident weights"

    @property
    def first(self) -> ResidentTile:
        """The first product's tile."""
        return ResidentTile(self.rows, self.steps, together=False)

    @property
    def groups(self) -> int:
        """Groups of 64 columns behind the second product."""
        return self.n1 // CHANNELS

    def least_bytes(self, first: Product, residual: bool) -> int:
        """Shared memory for the second weights, what lies between, the windows of a tile and boxes of the output."""
        height, width = taps(first)
        window = (self.rows + height - 1) * UNIT * CHANNELS * 2
        box = self.first.pixels * CHANNELS * 2
        return self.n1 * CHANNELS * 2 + width * window + (2 + _BOXES[residual]) * box + _BARRIERS

    @property
    def parameters(self) -> Named:
        return (("rows", self.rows), ("n1", self.n1), ("steps", self.steps), ("resident", "turns"))

    @classmethod
    def read(cls, reader: Reader) -> ResidentChainTile:
        rows, n1, steps = map(reader.number, ("rows", "n1", "steps"))
        reader.word("resident", {"turns": "turns"})
        return cls(rows, steps, n1)

    def cxx(self, gpu: Gpu, chain: ProductChain) -> str:
        """`bolt::cutlass_kernels::ResidentPair<8, 4, 256, 3, 3>`"""
        values = (self.rows, self.steps, self.n1, *taps(chain.first))
        return f"{SPACE}::ResidentPair<{', '.join(map(str, values))}{chain.first.element}>"

    def packed(self, chain: ProductChain) -> str:
        return packed(chain.first, self.steps, 1)

    def refuse(self, gpu: Gpu, chain: ProductChain) -> str | None:
        first, second = chain.first, chain.second
        # The first's rows are not stored, the second's are.
        reason = refuse_windows(self.rows, UNIT, self.steps, 0, gpu, replace(first, n=second.n))
        if reason is not None:
            return reason
        height = dict(first.shape)["out_h"]
        if self.rows >= 2 * height:
            return Reason("half of its rows would be beyond the {} of an image", height)
        needed = self.least_bytes(first, second.residual)
        if needed > gpu.shared_memory:
            return Reason("needs {} bytes of shared memory, a block has {}", needed, gpu.shared_memory)
        return None

    def seconds(self, chain: ProductChain, work: Work, target: Target) -> float:
        """The tiles of the busiest SM, or memory."""
        gpu, first = gpu_of(target), chain.first
        second = self.first.pixels * CHANNELS * self.n1 / (_MULTIPLIES * speed(target))
        products = products_seconds(self.rows, UNIT, CHANNELS, first, target) + second
        instructions = self.first.pixels * (CHANNELS * work.between + self.n1 * work.functions)
        store = self.groups * _STORE + instructions * FUNCTION / speed(target)
        # One warpgroup stores while the other multiplies.
        each = max(products, (products + store) / 2)
        compute = ceil(self.first.tiles(first) / gpu.sms) * each
        return max(_BEGINS + compute, work.nbytes / (_MEMORY * target.bandwidth)) + store

    def __str__(self) -> str:
        channels = self.steps * STEP
        return f"{self.rows}x{UNIT} pixels in turns, weights of {channels} channels in registers, then {self.n1}"


_ROWS = (8, 14, 4)
"""64, 112 and 32 pixels. 8 and 14 divide images of 56, 112 and 224; more would leave boxes of the output no room."""

# Fitted to thirteen times measured on an H200, 32 to 112 pixels a tile, 48 to 256 columns, batches 1 to 128: off by 3%
# on average. Products in a second of one SM; seconds in which a launch begins and weights come, and of a box on its way
# to memory; bytes in a second from memory, in parts of what the row states.
_MULTIPLIES = 2.2e12
_BEGINS, _STORE = 3.5e-6, 0.2e-6
_MEMORY = 0.8


def tiles(gpu: Gpu, chain: ProductChain) -> tuple[tuple[ResidentChainTile, ...], str | None]:
    """The tiles as wide as both products, in every height; and why there are none."""
    if (reason := refuse_chain(gpu, chain)) is not None:
        return (), reason
    steps, n1 = ceil(chain.first.depth / STEP), aligned(chain.second.n, CHANNELS)
    return tuple(ResidentChainTile(rows, steps, n1) for rows in _ROWS), None


def refuse_chain(gpu: Gpu, chain: ProductChain) -> str | None:
    """Why no tile is one for the products on this GPU, None where some may be."""
    first, second = chain.first, chain.second
    if not gpu.warpgroup_mma:
        return "needs WGMMA"
    if first.kernel != "Conv":
        return "weights stay in registers for larger windows than 1x1"
    if first.n > CHANNELS:
        return Reason("keeps {} columns at most beside weights in registers, here are {}", CHANNELS, first.n)
    if second.n > _WIDEST:
        return Reason("keeps second weights of {} columns at most, here are {}", _WIDEST, second.n)
    return None
