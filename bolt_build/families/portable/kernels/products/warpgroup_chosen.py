"""Rows times the matrix that an index chooses for each, by WGMMA: the experts of a mixture on Hopper. One kernel groups
rows by what they choose, another multiplies each group's rows, which it reads and stores where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, erfc, sqrt

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.cxx import boolean
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.kernels.products.chosen_extents import (
    along,
    call_text,
    chosen_of,
    extents,
    load_of,
    parameters_text,
    refuse_half,
    types_of,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.targets import Gpu, Target, target_named

DEPTH = 64
"""Elements of the depth in a step: a row of 128 bytes of shared memory."""
_MOST_MATRICES = 2048
"""Rows of so many matrices are counted in 32 KB of shared memory."""
_ELEMENTS = 1 << 32
"""Rows are found by numbers of 32 bits."""

_OF_TILES = {
    (2, 1, 256, 4, 1): (0.94e-6, 3.0e-6), (2, 1, 192, 5, 1): (0.74e-6, 1.5e-6), (2, 1, 128, 6, 1): (0.62e-6, 1.5e-6),
    (3, 1, 192, 4, 1): (0.95e-6, 3.0e-6), (1, 1, 256, 4, 1): (0.56e-6, 2.0e-6), (1, 2, 128, 3, 2): (0.98e-6, 3.0e-6),
    (1, 1, 192, 3, 2): (0.88e-6, 2.5e-6), (1, 1, 128, 4, 2): (0.64e-6, 1.5e-6), (1, 1, 64, 6, 2): (0.45e-6, 1.0e-6),
}  # fmt: skip
"""The tiles, by warpgroups, 64 rows of each, columns, stages and blocks of a multiprocessor: sums of others have no
registers, or their steps no shared memory. Seconds that a step takes a block, and a tile's beginning and end: 24 shapes
took an H200 so long, give or take a sixth."""


@dataclass(frozen=True)
class WarpgroupChosenTile(NumberTile):
    """`groups` warpgroups have `fragments` times 64 rows each, and all `columns`. Factors of `stages` steps have room.
    A multiprocessor has `blocks` blocks."""

    groups: int
    fragments: int
    columns: int
    stages: int
    blocks: int

    @property
    def rows(self) -> int:
        return 64 * self.groups * self.fragments

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return self.stages * (2 * DEPTH * (self.rows + self.columns) + 16) + 1024


def scratch_bytes(rows: int, matrices: int, of_tile: int) -> int:
    """Bytes in which rows are put in order, with the tiles of so many rows that they become."""
    return 16 + 16 * (rows // of_tile + min(matrices, rows)) + 4 * rows


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if not gpu.warpgroup_mma:
        return "GPUs before Hopper have no WGMMA"
    if (reason := refuse_half(problem, gpu)) is not None:
        return reason
    m, n, k, matrices = extents(problem)
    if load_of(k) < 8 or (not along(problem) and load_of(n) < 8):
        return "rows and matrices are read by 16 bytes, which their lines are no multiples of"
    if matrices > _MOST_MATRICES:
        return Reason("counts rows of at most {} matrices", _MOST_MATRICES)
    return "rows have more elements than 32 bits count" if m * k >= _ELEMENTS else None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[WarpgroupChosenTile]:
    """No wider than the product, in whole 64 columns."""
    _, n, _, _ = extents(problem)
    for shape in _OF_TILES:
        if (tile := WarpgroupChosenTile(*shape)).columns < n + 64:
            yield tile


def _refuse_tile(problem: KernelProblem, tile: WarpgroupChosenTile, gpu: Gpu) -> str | None:
    if (tile.groups, tile.fragments, tile.columns, tile.stages, tile.blocks) not in _OF_TILES:
        return "has no such tile"
    return refuse_shared(tile.shared, gpu)


_MEASURED = target_named("h200")
"""The GPU that constants were measured on: the tensor cores of others take as much longer as their rate is lower."""
_GROUPS, _ROW = 2.4e-6, 0.13e-9
"""Seconds of the kernel that groups rows, and of a row there, as an H200 took them."""
_REACHED = 0.95
"""The part of the bandwidth that few rows of many matrices reached on an H200."""


def _tiles_of_one(mean: float, rows: int) -> float:
    """Tiles that a matrix takes on average, where rows choose each as likely: the sum over how many it may have of how
    likely it has more rows than these hold."""
    spread = sqrt(2.0 * max(mean, 1.0))
    return sum(0.5 * erfc((many * rows + 0.5 - mean) / spread) for many in range(int(mean / rows) + 3))


def _seconds(problem: KernelProblem, tile: WarpgroupChosenTile, target: Target) -> float:
    """What a multiprocessor computes one behind the other, or what memory moves, behind the kernel that groups rows."""
    gpu, (m, n, k, matrices) = target.gpu, extents(problem)
    assert gpu is not None, "tensor cores are a GPU's"
    chosen = chosen_of(m, matrices)
    tiles = ceil(n / tile.columns) * max(chosen, matrices * _tiles_of_one(m / matrices, tile.rows))
    step, begin = _OF_TILES[tile.groups, tile.fragments, tile.columns, tile.stages, tile.blocks]
    waves = max(tiles / (gpu.sms * tile.blocks), 1.0)
    waves = 0.5 * (waves + ceil(waves))  # blocks of the last wave idle, and tiles with few rows fill it
    busy = waves * (ceil(k / DEPTH) * step + begin) * max(_MEASURED.rate("fp16") / target.rate("fp16"), 1.0)
    size = problem.outputs[0].format.dtype.nbytes
    memory = size * (m * (n + k) + chosen * n * k) / (target.bandwidth * _REACHED)
    return max(busy, memory) + _GROUPS + m * _ROW + target.launch_seconds


def _emit(problem: KernelProblem, tile: WarpgroupChosenTile, at: StepExpressions) -> StepCode:
    m, n, _, matrices = extents(problem)
    a, _, made, index = types_of(problem)
    numbers = f"{tile.groups}, {tile.fragments}, {tile.columns}, {tile.stages}, {tile.blocks}"
    how = f"{numbers}, {boolean(along(problem))}, {load_of(n)}, {a}, {made}, {index}"
    at, member = with_scratch(problem, scratch_bytes(m, matrices, tile.rows), at)
    call = call_text(problem, at, "warpgroup_chosen", how, parameters_text(problem))
    includes = ("bolt_portable/cuda/products/warpgroup_chosen.h", "bolt_portable/cuda/passed_constants.h")
    return StepCode(includes, *member, call)


FORM: Form[WarpgroupChosenTile] = Form(
    "warpgroups", lambda problem: isinstance(problem.op, ChosenMatMul), _refuse, _tiles, _refuse_tile, _seconds,
    WarpgroupChosenTile.read, _emit,
)  # fmt: skip
