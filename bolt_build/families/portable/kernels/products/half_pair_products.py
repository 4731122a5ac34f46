"""How a GPU multiplies rows with weights that pairs pick, in half precision on its tensor cores: a tile of pairs has a
few positions, so products with all of them are never stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.products.pair_product_loops import Loops, looped, parameters
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.pair_product import PairProduct
from bolt_build.targets import Gpu, Target

_TILE, _REACH, _SPAN, _PITCH = 64, 80, 128, 8
"""Of the kernel's header: rows and columns of a tile, positions that a warp's lines have and those of a tile, and
elements between rows of shared memory."""
_BYTE = 256
"""Products that a byte may name: so many are there to be read."""
_THREADS, _REGISTERS = 128, 128
"""Of a block, and an estimate of those of a thread."""
DEEPEST = 128
"""Numbers of a row."""
_LOAD = 8
"""Elements that are copied at once."""


@dataclass(frozen=True)
class PairTile(NumberTile):
    """Factors of so many terms have room: those of one are copied when the term in front is done."""

    together: int


def _op(problem: KernelProblem) -> PairProduct:
    assert isinstance(problem.op, PairProduct)
    return problem.op


def _depth(problem: KernelProblem) -> int:
    """Up to the next whole instruction."""
    return ceil(problem.inputs[1].shape[-1] / 16) * 16


def _shared(problem: KernelProblem, tile: PairTile) -> int:
    factors = (_TILE + _SPAN) * (_depth(problem) + _PITCH) * 2
    products = (_TILE * (_REACH + _PITCH) + _BYTE - _REACH - _PITCH) * 4
    return ceil(max(factors, products) / 16) * 16 * tile.together


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    dtype = problem.inputs[0].format.dtype
    if dtype not in HALVES:
        return "multiplies rows in f16 or bf16"
    depth = problem.inputs[1].shape[-1]
    if depth > DEEPEST:
        return Reason("rows have {} numbers, at most {} are supported", depth, DEEPEST)
    found = looped(problem)
    assert isinstance(found, Loops), "rules refuse rows that are no run"
    steps = (depth, *found.lines, *(step for loop in found.planes if loop.extent > 1 for step in loop.steps))
    if any(step % _LOAD for step in steps):
        return f"copies {_LOAD} numbers at once, rows do not begin at multiples of these"
    precision = next(name for name, each in PRECISIONS.items() if each is dtype)
    return None if gpu.instruction(precision) is not None else f"the GPU's tensor cores do not multiply {dtype.value}"


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PairTile]:
    for together in range(1, len(_op(problem).lying) + 1):
        yield PairTile(together)


def _refuse_tile(problem: KernelProblem, tile: PairTile, gpu: Gpu) -> str | None:
    terms = len(_op(problem).lying)
    if not 1 <= tile.together <= terms:
        return Reason("keeps factors of {} terms, there are {}", tile.together, terms)
    return refuse_shared(_shared(problem, tile), gpu)


_ARITHMETIC, _BEGIN, _WAIT = 0.5, 2.5e-6, 1e-6
_PICK, _ONE_BY_ONE = 0.58e-6, 1.6e-6
"""The part of the rate of one warp's instructions that is reached; seconds of the first blocks' beginning and the last
ones' end, of a term whose copies all blocks at once wait for, and in which a multiprocessor picks what a tile has of a
term, four pairs at once or one by one: from what an H100 took for eight kernels, off by up to a tenth."""


def _seconds(problem: KernelProblem, tile: PairTile, target: Target) -> float:
    op, gpu = _op(problem), target.gpu
    assert gpu is not None, "tensor cores are a GPU's"
    terms, depth = len(op.lying), _depth(problem)
    blocks = prod(op.shape[:-2]) * ceil(op.shape[-2] / _TILE) * ceil(op.shape[-1] / _TILE)
    resident = occupancy(_THREADS, _REGISTERS, _shared(problem, tile), gpu) * gpu.sms
    rate = target.rate("fp16") * gpu.warp_mma_share / gpu.sms * _ARITHMETIC
    pick = _ONE_BY_ONE if op.shape[-1] % 4 else _PICK
    busy = terms * (2 * _TILE * _REACH * depth / rate + pick)
    waits = _BEGIN + ceil(blocks / resident) * _WAIT * terms / tile.together
    memory = problem.nbytes / target.bandwidth
    return max(ceil(blocks / gpu.sms) * busy + waits, memory) + target.launch_seconds


def _emit(problem: KernelProblem, tile: PairTile, at: StepExpressions) -> StepCode:
    types = ", ".join(COMPUTED[operand.format.dtype] for operand in (problem.inputs[0], problem.outputs[0]))
    call = (
        f"bolt::portable::half_pair_product<{_depth(problem)}, {boolean(tile.together > 1)}, {types}>"
        f"(r, {parameters(problem, at)}, {at.outputs[0]});"
    )
    return StepCode(("bolt_portable/cuda/products/half_pair_product.h",), None, "", call)


FORM: Form[PairTile] = Form(
    "tensor_cores", lambda problem: isinstance(problem.op, PairProduct), _refuse, _tiles, _refuse_tile, _seconds,
    PairTile.read, _emit,
)  # fmt: skip
