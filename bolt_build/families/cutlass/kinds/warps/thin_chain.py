"""Kernels for two products of few channels, one behind the other, of `mma.sync`: each warp computes whole rows of both
in its registers, beside both weights in shared memory.

Tiles of a warpgroup wait for their loads, their products, their activations and their stores one after the other, and
two warpgroups hide little of that. TMA takes as long for a short row as for one of 128 bytes, longer for one that
begins between sectors. Here lanes load and store their own words, and no warp waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as every
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE, wasted_rows
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Work
from bolt_build.families.cutlass.product_chain import ProductChain
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_CHUNKS = (32, 16)
"""Columns between the products that a warp may have at once."""


@dataclass(frozen=True)
class ThinChainTile:
    """The columns of both products and of what lies between, `rows` of a warp at a time, and warps of a block."""

    k: int
    n0: int
    n1: int
    rows: int
    warps: int

    header: ClassVar[str] = "_thin_pair"
    memory_mb: ClassVar[int] = 500
    halves: ClassVar[tuple[DType, ...]] = HALVES
    group: ClassVar[str] = "thin rows"

    @property
    def weight_bytes(self) -> int:
        """Of both products, and their biases."""
        return (self.k + self.n1) * self.n0 * 2 + (self.n0 + self.n1) * 4

    @property
    def chunk(self) -> int:
        """Columns between the products that a warp has at once."""
        return next(columns for columns in _CHUNKS if self.n0 % columns == 0)

    @property
    def registers(self) -> int:
        """Of a thread, about: its words of x, the sums of both products and what goes from one to the other."""
        fragments = self.rows // 16
        return fragments * (self.k // 4 + self.n1 // 2 + 3 * self.chunk // 4) + _ADDRESSES

    @property
    def parameters(self) -> Named:
        return (("k", self.k), ("n", self.n0), ("n1", self.n1), ("rows", self.rows), ("warps", self.warps))

    @classmethod
    def read(cls, reader: Reader) -> ThinChainTile:
        k, n0, n1 = map(reader.number, ("k", "n", "n1"))
        return cls(k, n0, n1, reader.number("rows"), reader.number("warps"))

    def cxx(self, gpu: Gpu, chain: ProductChain) -> str:
        """`bolt::cutlass_kernels::ThinPair<40, 160, 40, 32, 12>`"""
        values = (self.k, self.n0, self.n1, self.rows, self.warps)
        return f"{SPACE}::ThinPair<{', '.join(map(str, values))}{chain.first.element}>"

    def packed(self, chain: ProductChain) -> str:
        return chain.first.weights

    def refuse(self, gpu: Gpu, chain: ProductChain) -> str | None:
        most = min(255, gpu.registers // (32 * self.warps) // 8 * 8)
        if self.registers > most:
            return Reason("a thread would need {} registers, {} warps leave it {}", self.registers, self.warps, most)
        if self.weight_bytes > gpu.shared_memory:
            return Reason("both weights are {} bytes, a block has {}", self.weight_bytes, gpu.shared_memory)
        return wasted_rows(self.rows, chain.first.m)

    def seconds(self, chain: ProductChain, work: Work, target: Target) -> float:
        """The warps of the busiest SM, all together or as long as each waits by itself; or memory."""
        gpu, first = gpu_of(target), chain.first
        speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
        # Tiles go to a warp of each SM first.
        tiles = ceil(ceil(first.m / self.rows) / gpu.sms)
        rounds = ceil(tiles / self.warps)
        depth = ceil(self.k / 16) * 16
        products = self.rows * self.n0 * (depth + self.n1) / _MULTIPLIES
        reads = (self.k + self.n1) * self.n0 * 2 / _READS
        between, stored = self.rows * self.n0, self.rows * self.n1
        others = (
            between * (_BETWEEN + _PAIRED * work.between) + stored * (_STORED + work.functions) + self.rows * self.k
        )
        instructions = others / _INSTRUCTIONS
        slowest = max(products, reads, instructions)
        busy = (slowest + _OVERLAP * (products + reads + instructions - slowest)) / speed
        alone = self.rows * self.n0 / 32 * (_BETWEEN + _PAIRED * work.between) * _ALONE
        waits = _LOADS + self.n0 / self.chunk * _CHUNK_WAITS + alone
        together, waits = tiles * busy, rounds * waits
        compute = max(together, waits) + _OVERLAP * min(together, waits)
        memory = work.nbytes / (_MEMORY * target.bandwidth)
        begins = _BEGINS + _WARP * self.warps + self.weight_bytes / (self.warps * _WEIGHTS)
        found = begins + max(compute, memory) + _OVERLAP * min(compute, memory)
        return _IN_ENGINES * found * (_CROWDED if self.registers > _MANY else 1.0)

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.k} to {self.n0} to {self.n1} columns, {self.warps} warps"


_ROWS, _WARPS = (16, 32), (8, 12, 16, 20, 24)
_CHANNELS = 96
"""Of either end: more words and sums of a row leave too few warps room."""
_ADDRESSES = 40
"""Registers of a thread for weights on their way, addresses and counters."""

# Of an SM in a second: products, as `mma.sync` reaches some 60% of WGMMA's peak; bytes from shared memory, 128 a
# cycle; instructions of a lane, 128 a cycle of which four in five are issued. Of a warp: bytes of weights from L2,
# which go through its registers, so that each load waits. What a warp waits for is fitted to 33 kernels on an H200
# (`thin_pairs.json`), off by 17%; weights to six more of ConvNeXt's tuning, off by 10%, with the fastest first.
_MULTIPLIES, _READS, _INSTRUCTIONS, _WEIGHTS = 4.0e12, 2.2e11, 1.8e11, 1.5e9
_BETWEEN, _STORED, _PAIRED = 2.3, 5, 0.7
"""Instructions that each element between takes, its rounding and its part of loads and products, and each of a result;
activations apart, of which those between take so much less as they are of two numbers at once. Those of 32 rows by 32
columns, with GELU: 281 of a warp, as the compiler leaves them for 40 channels."""
_BEGINS, _WARP = 2.0e-6, 5e-8
"""Seconds of a launch, and in which a block begins and its first weights come; and those for each of its warps:
MobileNetV3's small pairs took 1.5 us with eight and 3.5 with sixteen."""
_ALONE = 3e-9
"""Seconds from an instruction of a warp alone to its next: activations are chains of those that wait for each other."""
_LOADS, _CHUNK_WAITS = 0.6e-6, 0.1e-6
"""Seconds in which a warp alone waits for rows from memory and residuals, and for the products of each chunk."""
_MEMORY = 0.8
"""Part of the bandwidth that these kernels reach."""
_OVERLAP = 0.5
"""Part that shows of what takes less time beside what takes more."""
_MANY, _CROWDED = 200, 1.15
"""Registers of a thread beyond which kernels take so much longer: compilers keep some of them in memory."""
_IN_ENGINES = 0.8
"""Of the times of single kernels over buffers beyond L2: blocks of InceptionNeXt and EfficientFormer in engines."""


def tiles(gpu: Gpu, chain: ProductChain) -> tuple[tuple[ThinChainTile, ...], str | None]:
    """The tiles of exactly these columns; and why there are none."""
    if (reason := refuse_chain(gpu, chain)) is not None:
        return (), reason
    columns = (chain.first.depth, chain.first.n, chain.second.n)
    return tuple(ThinChainTile(*columns, rows, warps) for rows, warps in every(_ROWS, _WARPS)), None


def refuse_chain(gpu: Gpu, chain: ProductChain) -> str | None:
    """Why no tile is one for the products on this GPU, None where some may be."""
    first, second = chain.first, chain.second
    if not gpu.overlaps:
        return "rows of single warps need launches that overlap"
    if first.kernel != "Gemm":
        return "rows of single warps are of no larger windows than 1x1"
    if max(first.depth, second.n) > _CHANNELS:
        return Reason("a warp keeps {} channels at most, here are {} and {}", _CHANNELS, first.depth, second.n)
    if first.depth % ALIGNMENT:
        return Reason("loads rows in runs of {} channels, {} is no multiple", ALIGNMENT, first.depth)
    if first.n % _CHUNKS[-1]:
        return Reason("takes {} columns at once between the products, {} is no multiple", _CHUNKS[-1], first.n)
    return None
