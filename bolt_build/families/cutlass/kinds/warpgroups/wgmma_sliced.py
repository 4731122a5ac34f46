"""Kernels for one product of few tiles on Hopper: the blocks of a cluster share the depth of each tile, and add up
their sums through the shared memory of each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.kinds.rules import NARROW, wasted_rows
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import LEAST_STAGES, refuse_product, shared_of, stages
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_time import work_seconds
from bolt_build.families.cutlass.kinds.whole import OneOrderTile, WholeTile
from bolt_build.families.cutlass.problems.product import Product, Work
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_LEAST_STEPS = 2
"""Steps of a block, at least."""
_BEGINS, _SLOWER, _TOLD = 1.26e-6, 1.33, 4.5e-6
"""Seconds of a launch; how much longer all that follows takes than `wgmma_time` says of two warpgroups in turn, where
one multiplies and stores; and seconds in which a block tells others 64 x 128 sums. Fitted to 82 kernels on an H200, off
by 7%, and 44 others by 5%."""


@dataclass(frozen=True)
class SlicedTile(WholeTile, OneOrderTile):
    """64 rows, `n` columns and `k` of the depth a step. The `slices` blocks of a cluster share the depth of a tile."""

    n: int
    k: int
    slices: int

    m: ClassVar[int] = 64
    header: ClassVar[str] = "_sliced_warpgroup"
    memory_mb: ClassVar[int] = 700
    halves: ClassVar[tuple[DType, ...]] = HALVES
    numbers_columns: ClassVar[bool] = False
    loads: ClassVar[int] = 8
    group: ClassVar[str] = "split-K in clusters"
    # What `wgmma_time` asks of a tile: a block has half of a multiprocessor.
    cluster: ClassVar[tuple[int, int]] = (1, 1)
    cooperative: ClassVar[bool] = False
    warpgroups: ClassVar[int] = 1
    pairs: ClassVar[bool] = False
    single: ClassVar[bool] = True

    @property
    def parameters(self) -> Named:
        return (("n", self.n), ("k", self.k), ("deep_cluster", self.slices))

    @classmethod
    def read(cls, reader: Reader) -> SlicedTile:
        return cls(reader.number("n"), reader.number("k"), reader.number("deep_cluster"))

    def blocks(self, m: int, n: int) -> int:
        """Tiles of a product of so many rows and columns."""
        return ceil(m / self.m) * ceil(n / self.n)

    def stages(self, gpu: Gpu, beside: int = 0) -> int:
        """Of the pipeline, beside the sums that other blocks leave: `SlicedKernelOf`. A stage has so many more bytes
        `beside` its factors."""
        told = self.slices * ceil(self.m / self.slices) * (self.n + 8) * 4
        return stages(shared_of(gpu.shared_memory, single=True), (self.m + self.n) * self.k * 2 + beside, told)

    def cxx(self, product: Product, gpu: Gpu) -> str:
        """`bolt::cutlass_kernels::SlicedTile<64, 64, 4>`"""
        return f"{SPACE}::SlicedTile<{self.n}, {self.k}, {self.slices}{product.element}>"

    def packed(self, product: Product) -> str:
        return product.weights

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        reason = refuse_product(gpu, product)
        if reason is None and product.wide:
            reason = "adds sums up in a cluster for results in half precision"
        return reason or self._refuse_size(gpu, product)

    def _refuse_size(self, gpu: Gpu, product: Product) -> str | None:
        if self.n > 2 * max(product.n, NARROW):
            return Reason("over half of its columns would be beyond the {} of the product", product.n)
        if self.k >= 2 * product.depth:
            return Reason("half of its depth would be beyond the {} of the product", product.depth)
        steps = product.taps * ceil(product.depth / self.k)
        if steps < _LEAST_STEPS * self.slices:
            return Reason(
                "{} steps are fewer than {} for each of {} blocks of a cluster", steps, _LEAST_STEPS, self.slices
            )
        blocks = self.slices * self.blocks(product.m, product.n)
        if blocks > 2 * gpu.sms:
            return Reason("{} blocks are more than two on each of {} multiprocessors", blocks, gpu.sms)
        if (found := self.stages(gpu)) < LEAST_STAGES:
            return Reason("shared memory has room for {} stages of its pipeline, {} are needed", found, LEAST_STAGES)
        return wasted_rows(self.m, product.m)

    def refuse_slices(self, gpu: Gpu, product: Product) -> str | None:
        return "its clusters add up their slices themselves"

    def seconds(self, product: Product, work: Work, target: Target, before: float = 0.0) -> float:
        """`before`: seconds in which the A operand of a step is transformed."""
        sliced = Work(
            work.m, work.n, work.depth, work.taps, work.windowed, work.nbytes, self.slices, work.stride, work.functions
        )
        told = min(self.m, product.m) * self.n / (64 * 128)
        return _BEGINS + _SLOWER * work_seconds(self, sliced, target, before=before) + _TOLD * told

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}, its depth shared by {self.slices} blocks"


SLICED_TILES = tuple(
    SlicedTile(n, k, slices)
    for slices, (n, k) in every((2, 3, 4, 6, 8), ((64, 64), (32, 64), (128, 64), (96, 64), (32, 128)))
)
