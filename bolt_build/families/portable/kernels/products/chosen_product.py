"""Rows times the matrix that an index chooses for each: the experts of a mixture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import beside, refuse_shared
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import chain, refuse_stages
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.products.half_products import (
    DEPTH,
    JOIN,
    PART,
    PARTS,
    SIZES,
    product_rate,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Rule, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.targets import Gpu, Target

_LOADS = (8, 4, 2, 1)
_PITCH = 8
"""Elements between rows of shared memory."""
STAGES = (2, 3, 4)
"""Steps whose factors have room."""
_BEGIN = 3e-6
"""A guess: seconds in which a block reads what its rows chose, begins and stores."""
_WAITS = {2: 2.0, 3: 1.4, 4: 1.2}
"""Guesses: times the seconds that a step of other products takes, by stages."""
_REACHED = 0.62
"""The part of the bandwidth that few rows of many matrices reached on an H200."""
_PITCH = 8
"""Elements between rows of shared memory."""
STAGES = (2, 3, 4)
"""Steps whose factors have room."""
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


def _extents(problem: KernelProblem) -> tuple[int, int, int, int]:
    """Rows, columns, depth, and how many matrices there are."""
    (rows, depth), columns = problem.inputs[0].shape, problem.outputs[0].shape[1]
    return rows, columns, depth, problem.inputs[1].shape[0]


def _refuse(problem: KernelProblem) -> str | None:
    for operand in (*problem.inputs[:2], *problem.inputs[3:], *problem.outputs):
        if operand.format.dtype not in COMPUTED:
            names = ", ".join(dtype.value for dtype in COMPUTED)
            return f"computes with {names}, not with {operand.format.dtype.value}"
    return refuse_stages(problem, axis=1)


def _parameters(problem: KernelProblem, **more: int) -> str:
    op = problem.op
    assert isinstance(op, ChosenMatMul)
    m, n, k, matrices = _extents(problem)
    steps = (1, k) if op.transpose_b else (n, 1)
    return struct(
        "bolt::portable::ChosenMatMul", m=m, n=n, k=k, matrices=matrices, b_row=steps[0], b_column=steps[1], **more
    )


def _call(problem: KernelProblem, at: StepExpressions, name: str, how: str, parameters: str) -> str:
    inputs = f"{at.inputs[0]}, {at.inputs[1]}, {at.inputs[2]}"
    return f"bolt::portable::{name}<{how}>(r, {parameters}, {inputs}, {at.outputs[0]}, {chain(problem, at, ())});"


def _types(problem: KernelProblem) -> tuple[str, str, str, str]:
    rows, matrices, index = (each.format.dtype for each in problem.inputs[:3])
    return COMPUTED[rows], COMPUTED[matrices], COMPUTED[problem.outputs[0].format.dtype], ctype(index)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    call = _call(problem, at, "chosen_matmul", ", ".join(_types(problem)), _parameters(problem))
    return StepCode(("bolt_portable/chosen_matmul.h",), None, "", call)


def _refuse_half(problem: KernelProblem, gpu: Gpu) -> str | None:
    a, b = (operand.format.dtype for operand in problem.inputs[:2])
    if a is not b or a not in HALVES:
        return "multiplies factors that are both in f16, or both in bf16"
    precision = next(name for name, dtype in PRECISIONS.items() if dtype is a)
    return None if gpu.instruction(precision) is not None else f"the GPU's tensor cores do not multiply {a.value}"


def _load(*extents: int) -> int:
    """Elements that may be read or stored at once where lines begin at multiples of them."""
    return next(load for load in _LOADS if all(extent % load == 0 for extent in extents))


def _along(problem: KernelProblem) -> bool:
    assert isinstance(problem.op, ChosenMatMul)
    return problem.op.transpose_b


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

    def shared(self, along: bool) -> int:
        """Bytes of shared memory; `along`: columns of matrices are runs of memory."""
        right = self.columns * (DEPTH + _PITCH) if along else DEPTH * (self.columns + _PITCH)
        steps = 2 * self.parts * self.stages * (self.rows * (DEPTH + _PITCH) + right)
        return steps + 8 * self.rows + 16


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ChosenTile]:
    """No larger than the next power of two from the product's extents."""
    m, n, k, _ = _extents(problem)
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
    shared = tile.shared(_along(problem))
    if 4 * (tile.parts - 1) * tile.rows * tile.columns > shared - 8 * tile.rows - 16:
        return "sums of all groups but one have no room where factors were"
    return refuse_shared(shared, gpu)


def slots(rows: int, matrices: int, of_tile: int) -> int:
    """Blocks of a tile of rows: as many as it chooses matrices, about, where all are chosen alike."""
    return min(of_tile, matrices, rows, 1 + matrices * of_tile // max(rows, 1))


def _seconds(problem: KernelProblem, tile: ChosenTile, target: Target) -> float:
    """As of other products, of as many tiles as are multiplied: one for each matrix that a tile's rows choose."""
    gpu, (m, n, k, matrices) = target.gpu, _extents(problem)
    assert gpu is not None, "tensor cores are a GPU's"
    wide, chosen, steps = ceil(n / tile.columns), _chosen(m, matrices), ceil(k / DEPTH)
    tiles = wide * min(m / tile.rows + chosen, ceil(m / tile.rows) * _chosen(min(m, tile.rows), matrices))
    step, begin = _OF_TILES[tile.rows * tile.columns]
    turns = steps * step + begin
    busy = max(tiles / gpu.sms, 1.0) * turns * _RATE / product_rate(target)
    resident = beside(tile.threads, tile.registers, tile.shared(_along(problem)), gpu) * gpu.sms
    waits = ceil(tiles / resident) * (ceil(steps / tile.parts) * _WAIT + _BEGIN + (JOIN if tile.parts > 1 else 0.0))
    narrow = _STORE_LESS if _load(n) < 8 else 1.0
    size = problem.outputs[0].format.dtype.nbytes
    memory = size * (m * (n + k) + chosen * n * k) / (target.bandwidth * _REACHED)
    ahead = 1.0 if tile.stages > 2 else _NOT_AHEAD
    return ahead * max(busy * narrow, waits, memory) + target.launch_seconds


def _chosen(rows: int, matrices: int) -> float:
    """How many matrices so many rows choose, where each is as likely."""
    return matrices * (1.0 - (1.0 - 1.0 / matrices) ** rows)


def _emit_half(problem: KernelProblem, tile: ChosenTile, at: StepExpressions) -> StepCode:
    (m, n, k, matrices), along = _extents(problem), _along(problem)
    loads = f"{_load(k)}, {_load(k if along else n)}, {boolean(along)}, {_load(n)}"
    a, _, made, index = _types(problem)
    how = f"{tile.rows}, {tile.columns}, {loads}, {tile.parts}, {tile.stages}, {a}, {made}, {index}"
    parameters = _parameters(problem, slots=slots(m, matrices, tile.rows))
    return StepCode(
        ("bolt_portable/cuda/products/half_chosen.h",), None, "", _call(problem, at, "half_chosen", how, parameters)
    )


FORM: Form[ChosenTile] = Form(
    "tensor_cores", lambda problem: isinstance(problem.op, ChosenMatMul), _refuse_half, _tiles, _refuse_tile, _seconds,
    ChosenTile.read, _emit_half,
)  # fmt: skip

RULES = (
    Rule(ChosenMatMul, _refuse, _emit, lambda problem: 0.02, gpu_efficiency=0.0003, layouts=row_major, forms=(FORM,)),
)
