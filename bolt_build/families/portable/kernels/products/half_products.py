"""How a GPU multiplies two tensors in half precision on its tensor cores: scores of heads that no attention is made of,
products of channels with channels, a constant matrix by every image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import bias, chain
from bolt_build.families.common.geometry import strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.products.product_loops import (
    batch_loops,
    matmul_parameters,
    placed,
    placed_parameters,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul, Walks
from bolt_build.targets import Gpu, Target

SIZES = (32, 64, 128)
"""Rows and columns of a tile."""
DEPTH, _THREADS = 32, 128
"""Of a step, and of a block: those of the kernel's header."""
_PITCH = 8
"""Elements between rows of shared memory."""
_LOADS, _STORES = (8, 4, 2, 1), (8, 4, 2, 1)
STATIC = 48 << 10
"""Bytes of shared memory that a kernel has without asking for them."""
PARTS = (1, 2, 4)
"""Groups of warps of a block among which the depth may be shared."""
PART = 128
"""Least depth of a group: with two groups a depth of 256 took three quarters of the time on an H200."""


@dataclass(frozen=True)
class HalfTile(NumberTile):
    """A block computes so many rows and columns; `parts` groups of its warps share the depth. Candidates of one group
    state none."""

    rows: int
    columns: int
    parts: int = 1

    @property
    def parameters(self) -> Named:
        shared = (("parts", self.parts),) if self.parts > 1 else ()
        return (("rows", self.rows), ("columns", self.columns), *shared)

    @classmethod
    def read(cls, reader: Reader) -> HalfTile:
        return cls(reader.number("rows"), reader.number("columns"), reader.number("parts", 1))

    @property
    def threads(self) -> int:
        return _THREADS * self.parts

    def shared(self, along: tuple[bool, bool]) -> int:
        """Bytes of shared memory: steps of both factors for each group."""
        return self._stages(along) * self.parts * sum(self._step(along))

    def joins(self, along: tuple[bool, bool]) -> bool:
        """Whether the sums of all groups but the first have room where left factors were."""
        sums = 4 * self.rows * self.columns
        return (self.parts - 1) * sums <= self.parts * self._stages(along) * self._step(along)[0]

    def _stages(self, along: tuple[bool, bool]) -> int:
        """Three steps where they fit, else two."""
        return 3 if 3 * self.parts * sum(self._step(along)) <= STATIC else 2

    def _step(self, along: tuple[bool, bool]) -> tuple[int, int]:
        """Bytes of a step of each factor."""
        left, right = (
            2 * (lines * (DEPTH + _PITCH) if deep else DEPTH * (lines + _PITCH))
            for lines, deep in zip((self.rows, self.columns), along, strict=True)
        )
        return left, right

    @property
    def registers(self) -> int:
        """An estimate: sums, factors, and what all else takes."""
        return self.rows * self.columns // _THREADS + self.rows // 8 + 52


@dataclass(frozen=True)
class _Factors:
    """`batches` products of m by k and k by n; which factors lie along the depth, and how many elements of each are
    read at once; which inputs they are; and how many results may be stored at once."""

    batches: int
    m: int
    n: int
    k: int
    along: tuple[bool, bool]
    loads: tuple[int, int]
    inputs: tuple[int, int]
    stored: int


def _factors(problem: KernelProblem) -> _Factors:
    op = problem.op
    if isinstance(op, PlacedMatMul):
        return _placed_factors(problem)
    assert isinstance(op, MatMul)
    own, shape = op_operands(problem), problem.outputs[0].shape
    loads = []
    for side, index in enumerate(own[:2]):
        operand = problem.inputs[index]
        steps = [loop.steps[side] for loop in batch_loops(problem) if loop.extent > 1]
        lines = (operand.shape[-1], *(strides(operand)[-2:-1] if operand.shape[-2] > 1 else ()), *steps)
        loads.append(next(load for load in _LOADS if all(step % load == 0 for step in lines)))
    depth = problem.inputs[own[0]].shape[-2 if op.transpose_a else -1]
    along = (not op.transpose_a, op.transpose_b)
    sizes = prod(shape[:-2]), shape[-2], shape[-1], depth
    return _Factors(*sizes, along, (loads[0], loads[1]), (own[0], own[1]), _stored(shape[-1]))


def _placed_factors(problem: KernelProblem) -> _Factors:
    found = placed(problem)
    assert found is not None
    walks, sides = found.walks, []
    for side, lines in ((0, walks.rows), (1, walks.columns)):
        along = _along(walks, side)
        inner, outer = (walks.depth, lines) if along else (lines, walks.depth)
        numbers = [inner.extent, *(walk.sides[side] for walk in walks.batch)]
        numbers += [outer.sides[side]] if outer.extent > 1 else []
        sides.append((along, next(load for load in _LOADS if all(step % load == 0 for step in numbers))))
    batches = prod(walk.extent for walk in walks.batch)
    (along_a, load_a), (along_b, load_b) = sides
    extents = walks.rows.extent, walks.columns.extent, walks.depth.extent
    stored = _stored(extents[1], *(walk.sides[2] for walk in (*walks.batch, walks.rows)))
    return _Factors(batches, *extents, (along_a, along_b), (load_a, load_b), found.factors, stored)


def _stored(*steps: int) -> int:
    """Results that may be stored at once where rows and images begin at multiples of these: 8, 4, 2 or 1."""
    return next(count for count in _STORES if all(step % count == 0 for step in steps))


def _along(walks: Walks, side: int) -> bool:
    """Whether places of the depth are neighbours in a factor."""
    return walks.depth.extent == 1 or walks.depth.sides[side] == 1


def _refuse_walks(walks: Walks) -> str | None:
    """A reason where a factor is not loaded in runs, or the result not stored in such."""
    for side, lines in ((0, walks.rows), (1, walks.columns)):
        if not _along(walks, side) and lines.extent > 1 and lines.sides[side] != 1:
            return "elements of a factor are neighbours along neither its rows nor its columns"
    if walks.columns.extent > 1 and walks.columns.sides[2] != 1:
        return "elements of the result are neighbours along neither rows nor columns of the product"
    return None


def _serves(problem: KernelProblem) -> bool:
    """Products of which no factor is one packed matrix: those are a library's."""
    if isinstance(problem.op, PlacedMatMul):
        return True
    if not isinstance(problem.op, MatMul):
        return False
    a, b = (problem.inputs[index] for index in op_operands(problem)[:2])
    packed = b.constant and prod(b.shape[:-2]) == 1 and not problem.op.transpose_a and not a.constant
    return not packed and len(a.shape) > 1 < len(b.shape)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    a, b = (problem.inputs[index].format.dtype for index in op_operands(problem)[:2])
    if a is not b or a not in HALVES:
        return "multiplies factors that are both in f16, or both in bf16"
    found = placed(problem) if isinstance(problem.op, PlacedMatMul) else None
    if found is not None and (reason := _refuse_walks(found.walks)) is not None:
        return reason
    precision = next(name for name, dtype in PRECISIONS.items() if dtype is a)
    return None if gpu.instruction(precision) is not None else f"the GPU's tensor cores do not multiply {a.value}"


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[HalfTile]:
    """No larger than the next power of two from the product's extents."""
    factors = _factors(problem)
    for rows in SIZES:
        for columns in SIZES:
            if rows < 2 * max(factors.m, 17) and columns < 2 * max(factors.n, 17):
                yield from (HalfTile(rows, columns, parts) for parts in PARTS if parts * PART <= max(factors.k, PART))


NO_ROOM = "sums of all groups but one have no room where left factors were"


def _refuse_tile(problem: KernelProblem, tile: HalfTile, gpu: Gpu) -> str | None:
    if tile.rows not in SIZES or tile.columns not in SIZES:
        return "there are tiles of 32, 64 or 128 rows and columns"
    if tile.parts not in PARTS:
        return "the depth is shared by 1, 2 or 4 groups of warps"
    along = _factors(problem).along
    shared = tile.shared(along)
    if tile.parts > 1 and shared > STATIC:
        return Reason("steps of all groups take {} bytes of shared memory, there are {}", shared, STATIC)
    return refuse_shared(shared, gpu) if tile.joins(along) else NO_ROOM


_REACHED, _ARITHMETIC, BEGIN = 0.7, 0.5, 1e-6
"""Guesses: parts of the bandwidth and of the rate of one warp's instructions that are reached; and seconds of a block's
beginning and end."""
STEP, JOIN = {1: 0.3e-6, 2: 0.2e-6, 4: 0.34e-6}, 0.4e-6
"""Seconds of a step of one group of warps, whose copies it waits for, by how many groups there are: about what six
products of two tensors took on an H200. And those in which groups add up what they have: a guess."""
L2_RATE = 1.01e11
"""Bytes a second that come to a multiprocessor from L2, as measured for other products."""
STORE = {8: 0.35e-6, 4: 0.6e-6, 2: 4.3e-6, 1: 8e-6}
"""Seconds in which a multiprocessor stores 128 x 128 results, by how many are stored at once: of two and of eight what
one product took on an H200, 96 times 128 x 64 by 64 x 512. Of four an H100 took
about twice as long as of eight; that of one is a guess."""
_NARROW = {8: 1.0, 4: 0.8, 2: 0.5, 1: 0.25}
"""Guesses at what is left of the bandwidth where fewer elements are read at once."""


def product_rate(target: Target) -> float:
    """Operations a second of products that a multiprocessor's warps reach."""
    assert target.gpu is not None, "tensor cores are a GPU's"
    return target.rate("fp16") * target.gpu.warp_mma_share / target.gpu.sms * _ARITHMETIC


def _seconds(problem: KernelProblem, tile: HalfTile, target: Target) -> float:
    gpu, factors = target.gpu, _factors(problem)
    assert gpu is not None, "tensor cores are a GPU's"
    blocks = factors.batches * ceil(factors.m / tile.rows) * ceil(factors.n / tile.columns)
    steps = ceil(factors.k / DEPTH)
    resident = occupancy(tile.threads, tile.registers, tile.shared(factors.along), gpu) * gpu.sms
    rate = product_rate(target)
    results = tile.rows * tile.columns
    busy = steps * 2 * results * DEPTH / rate + STORE[factors.stored] * results / (128 * 128)
    waits = ceil(blocks / resident) * (
        ceil(steps / tile.parts) * STEP[tile.parts] + BEGIN + (JOIN if tile.parts > 1 else 0.0)
    )
    narrow = zip(factors.inputs, factors.loads, strict=True)
    extra = sum(problem.inputs[index].nbytes * (1 / _NARROW[load] - 1) for index, load in narrow)
    memory = (problem.nbytes + extra) / (target.bandwidth * _REACHED)
    copies = blocks * steps * (tile.rows + tile.columns) * DEPTH * 2 / (L2_RATE * gpu.sms)
    return max(ceil(blocks / gpu.sms) * busy + waits, memory, copies) + target.launch_seconds


def _emit(problem: KernelProblem, tile: HalfTile, at: StepExpressions) -> StepCode:
    op, factors, own = problem.op, _factors(problem), op_operands(problem)
    (a, b), before = factors.inputs, tuple(bias(problem, at, index) for index in own[2:])
    if isinstance(op, PlacedMatMul):
        found = placed(problem, at)
        assert found is not None
        parameters = placed_parameters(found)
    else:
        assert isinstance(op, MatMul)
        parameters = matmul_parameters(problem, op)
    dtype, made = problem.inputs[a].format.dtype, problem.outputs[0].format.dtype
    alongs = ", ".join(boolean(each) for each in factors.along)
    loads = f"{factors.loads[0]}, {factors.loads[1]}"
    parts = f", {tile.parts}" if tile.parts > 1 else ""
    how = f"{tile.rows}, {tile.columns}, {loads}, {alongs}, {factors.stored}{parts}"
    call = (
        f"bolt::portable::half_matmul<{how}, {COMPUTED[dtype]}, {COMPUTED[made]}>(r, {parameters}, "
        f"{at.inputs[a]}, {at.inputs[b]}, {at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/cuda/products/half_matmul.h",), None, "", call)


FORM: Form[HalfTile] = Form(
    "tensor_cores", _serves, _refuse, _tiles, _refuse_tile, _seconds, HalfTile.read, _emit
)  # fmt: skip
