"""How a GPU scatters slices that rows of indices name: each update claims its slice first, so that all slices move at
once and the result is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import WARP
from bolt_build.families.portable.kernels.moves.gather import tuples_text
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.kernels.scatter.scatter_lines import UPDATES
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterND
from bolt_build.targets import Gpu, Target

_ACCESS, CLAIM = 16, 4
"""Bytes that a thread moves at once, and those of a claim."""
MOST_SCRATCH = 1 << 30
"""Bytes of memory that a kernel keeps for itself, at most."""


@dataclass(frozen=True)
class ClaimTile(NumberTile):
    """A thread moves `lanes` elements of a slice."""

    lanes: int


def _named(problem: KernelProblem) -> int:
    """Axes of the data of which a slice has one place."""
    assert isinstance(problem.op, ScatterND)
    return problem.op.batch_dims + problem.inputs[1].shape[-1]


def slice_of(problem: KernelProblem) -> int:
    """Elements of a slice."""
    return prod(problem.inputs[0].shape[_named(problem) :])


def counts(problem: KernelProblem) -> tuple[int, int]:
    """Slices, and updates of them."""
    data, indices = problem.inputs[:2]
    return prod(data.shape[: _named(problem)]), prod(indices.shape[:-1])


def _scratch(problem: KernelProblem) -> int:
    op, (slices, updates) = problem.op, counts(problem)
    assert isinstance(op, ScatterND)
    return CLAIM * (slices + (0 if op.reduction == "none" else updates))


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (scratch := _scratch(problem)) > MOST_SCRATCH:
        return Reason("takes {} bytes beside its tensors, at most {} are kept", scratch, MOST_SCRATCH)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ClaimTile]:
    size, inner = problem.outputs[0].format.dtype.nbytes, slice_of(problem)
    yield from (ClaimTile(lanes) for lanes in (16, 8, 4, 2, 1) if lanes * size <= _ACCESS and inner % lanes == 0)


def _refuse_tile(problem: KernelProblem, tile: ClaimTile, gpu: Gpu) -> str | None:
    size, inner = problem.outputs[0].format.dtype.nbytes, slice_of(problem)
    if tile.lanes not in (1, 2, 4, 8, 16) or tile.lanes * size > _ACCESS:
        return Reason("words of {} elements are no accesses of {} bytes at most", tile.lanes, _ACCESS)
    if inner % tile.lanes:
        return Reason("slices of {} elements are no words of {}", inner, tile.lanes)
    return None


_REACHED, _INSTRUCTIONS, _ISSUED, _HIDDEN = 0.6, 45, 0.6, 0.1
"""The part of the bandwidth, as two kernels of an H200 reached; and guesses at instructions of a thread for its word,
the part of the rate at which they go, and that of the shorter of both which the longer one does not hide."""
UNEVEN = 2.0
"""How much longer chains take where some slices have most updates: updates that were drawn evenly took less, and one
slice of over 32 a thousand times as long."""
_CHAIN, _SOUGHT, _STEP = 15e-12, 32, 2.5e-9
"""Seconds of a GPU for a step of a warp along a slice's chain, which it walks once for each update and once more: as
eight kernels of an H200 took, off by a quarter; updates of one slice above which its threads go through all of them;
and a guess at seconds of one of these, which wait for each other."""
_LAUNCHES, _WAIT = 3, 0.7e-6
"""Kernels one after the other, and seconds in which one's threads wait for what they ask for first."""


def _seconds(problem: KernelProblem, tile: ClaimTile, target: Target) -> float:
    """What all tensors take beside claims, which are written twice and read by each word's thread."""
    made = problem.outputs[0]
    memory = moved(problem.nbytes + 2 * _scratch(problem), target) / _REACHED
    issued = made.type.elements / tile.lanes * _INSTRUCTIONS / (target.rate("fp32") / 2) / _ISSUED
    both = max(memory, issued) + _HIDDEN * min(memory, issued)
    op, (slices, updates) = problem.op, counts(problem)
    assert isinstance(op, ScatterND)
    if op.reduction != "none":
        each, warps = updates / slices, slices * ceil(slice_of(problem) / tile.lanes / WARP)
        both += UNEVEN * _CHAIN * warps * each * (each + 1) if each <= _SOUGHT else updates * _STEP + each * memory
    return float(both + _LAUNCHES * (OVERLAPPED * target.launch_seconds + _WAIT))


def _emit(problem: KernelProblem, tile: ClaimTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, ScatterND)
    types = f"{UPDATES[op.reduction]}, {tile.lanes}, {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    at, member = with_scratch(problem, _scratch(problem), at)
    pointers = ", ".join((*at.inputs, *at.outputs))
    call = f"bolt::portable::scatter_claims<{types}>(r, {tuples_text(data, indices, op.batch_dims)}, {pointers});"
    header = ("bolt_portable/cuda/scatter/scatter_claims.h",)
    return StepCode(header, *member, call)


FORM: Form[ClaimTile] = Form(
    "claims",
    lambda problem: problem.outputs[0].type.elements > 0 and problem.inputs[2].type.elements > 0,
    _refuse,
    _tiles,
    _refuse_tile,
    _seconds,
    ClaimTile.read,
    _emit,
)
