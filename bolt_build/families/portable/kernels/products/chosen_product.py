"""Rows times the matrix that an index chooses for each: the experts of a mixture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import refuse_stages
from bolt_build.families.portable.form import Form
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
from bolt_build.families.portable.kernels.products.half_products import (
    DEPTH,
    JOIN,
    PART,
    PARTS,
    SIZES,
    product_rate,
)
from bolt_build.families.portable.kernels.products.warpgroup_chosen import FORM as WARPGROUPS
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Rule, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.targets import Gpu, Target

_PITCH = 8
"""Elements between rows of shared memory."""
STAGES = (2, 3, 4)
"""Steps whose factors have room."""
_REACHED = 0.62
"""The part of the bandwidth that few rows of many matrices reached on an H200."""
_OF_TILES = {
    1024: (0.08e-6, 1.2e-6), 2048: (0.13e-6, 1.5e-6), 4096: (0.209e-6, 1.88e-6), 8192: (0.305e-6, 3.1e-6),
    16384: (0.505e-6, 5.54e-6),
}  # fmt: skip
"""Seconds that a step of a tile takes its multiprocessor, and its beginning and end, by its results: five products of
4096 rows and more took an H200 so long, the smallest tiles are guesses."""
_RATE = 2.323e12
"""Operations a second that a multiprocessor of an H200 is expected to reach: tiles of others take as much longer."""
_NOT_AHEAD, _STORE_LESS = 1.15, 1.3
"""Times as long with two stages, as measured, and where less than 16 bytes are stored at once: a guess."""
_WAIT, _BEGIN = 0.7e-6, 3e-6
"""Seconds of a step that waits for its copies, and in which a block reads what its rows chose, begins and stores: about
what few rows took on an H200."""


def _refuse(problem: KernelProblem) -> str | None:
    for operand in (*problem.inputs[:2], *problem.inputs[3:], *problem.outputs):
        if operand.format.dtype not in COMPUTED:
            names = ", ".join(dtype.value for dtype in COMPUTED)
            return f"computes with {names}, not with {operand.format.dtype.value}"
    return refuse_stages(problem, axis=1)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    call = call_text(problem, at, "chosen_matmul", ", ".join(types_of(problem)), parameters_text(problem))
    return StepCode(("bolt_portable/chosen_matmul.h",), None, "", call)


@dataclass(frozen=True)
class ChosenTile(NumberTile):
    """A block computes so many rows and columns; `parts` groups of its warps share the depth, and factors of `stages`
    steps have room for each."""

    rows: int
    columns: int
    parts: int
    stages: int

    @property
    def threads(self) -> int:
        return 128 * self.parts

    @property
    def registers(self) -> int:
        """An estimate: sums, factors, and what all else takes."""
        return self.rows * self.columns // 128 + self.rows // 8 + 60

    def shared(self, runs: bool) -> int:
        """Bytes of shared memory; `runs`: columns of matrices are runs of memory."""
        right = self.columns * (DEPTH + _PITCH) if runs else DEPTH * (self.columns + _PITCH)
        steps = 2 * self.parts * self.stages * (self.rows * (DEPTH + _PITCH) + right)
        return steps + 8 * self.rows + 16


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ChosenTile]:
    """No larger than the next power of two from the product's extents."""
    m, n, k, _ = extents(problem)
    for rows in SIZES:
        for columns in SIZES:
            if rows < 2 * max(m, 17) and columns < 2 * max(n, 17):
                for parts in PARTS:
                    if parts * PART <= max(k, PART):
                        yield from (ChosenTile(rows, columns, parts, stages) for stages in STAGES)


def _refuse_tile(problem: KernelProblem, tile: ChosenTile, gpu: Gpu) -> str | None:
    if tile.rows not in SIZES or tile.columns not in SIZES:
        return "there are tiles of 32, 64 or 128 rows and columns"
    if tile.parts not in PARTS:
        return "the depth is shared by 1, 2 or 4 groups of warps"
    if tile.stages not in STAGES:
        return "there is room for 2, 3 or 4 steps"
    if tile.registers * tile.threads > gpu.registers:
        return Reason("{} threads with {} registers are more than a multiprocessor has", tile.threads, tile.registers)
    shared = tile.shared(along(problem))
    if 4 * (tile.parts - 1) * tile.rows * tile.columns > shared - 8 * tile.rows - 16:
        return "sums of all groups but one have no room where factors were"
    return refuse_shared(shared, gpu)


def slots(rows: int, matrices: int, of_tile: int) -> int:
    """Blocks of a tile of rows: as many as it chooses matrices, about, where all are chosen alike."""
    return min(of_tile, matrices, rows, 1 + matrices * of_tile // max(rows, 1))


def _seconds(problem: KernelProblem, tile: ChosenTile, target: Target) -> float:
    """As of other products, of as many tiles as are multiplied: one for each matrix that a tile's rows choose."""
    gpu, (m, n, k, matrices) = target.gpu, extents(problem)
    assert gpu is not None, "tensor cores are a GPU's"
    wide, chosen, steps = ceil(n / tile.columns), chosen_of(m, matrices), ceil(k / DEPTH)
    tiles = wide * min(m / tile.rows + chosen, ceil(m / tile.rows) * chosen_of(min(m, tile.rows), matrices))
    step, begin = _OF_TILES[tile.rows * tile.columns]
    turns = steps * step + begin
    busy = max(tiles / gpu.sms, 1.0) * turns * _RATE / product_rate(target)
    resident = occupancy(tile.threads, tile.registers, tile.shared(along(problem)), gpu) * gpu.sms
    waits = ceil(tiles / resident) * (ceil(steps / tile.parts) * _WAIT + _BEGIN + (JOIN if tile.parts > 1 else 0.0))
    narrow = _STORE_LESS if load_of(n) < 8 else 1.0
    size = problem.outputs[0].format.dtype.nbytes
    memory = size * (m * (n + k) + chosen * n * k) / (target.bandwidth * _REACHED)
    ahead = 1.0 if tile.stages > 2 else _NOT_AHEAD
    return ahead * max(busy * narrow, waits, memory) + target.launch_seconds


def _emit_half(problem: KernelProblem, tile: ChosenTile, at: StepExpressions) -> StepCode:
    (m, n, k, matrices), runs = extents(problem), along(problem)
    loads = f"{load_of(k)}, {load_of(k if runs else n)}, {boolean(runs)}, {load_of(n)}"
    a, _, made, index = types_of(problem)
    how = f"{tile.rows}, {tile.columns}, {loads}, {tile.parts}, {tile.stages}, {a}, {made}, {index}"
    parameters = parameters_text(problem, slots=slots(m, matrices, tile.rows))
    return StepCode(
        ("bolt_portable/cuda/products/half_chosen.h",), None, "", call_text(problem, at, "half_chosen", how, parameters)
    )


FORM: Form[ChosenTile] = Form(
    "tensor_cores", lambda problem: isinstance(problem.op, ChosenMatMul), refuse_half, _tiles, _refuse_tile, _seconds,
    ChosenTile.read, _emit_half,
)  # fmt: skip

RULES = (
    Rule(
        ChosenMatMul,
        _refuse,
        _emit,
        lambda problem: 0.02,
        gpu_efficiency=0.0003,
        layouts=row_major,
        forms=(FORM, WARPGROUPS),
    ),
)
