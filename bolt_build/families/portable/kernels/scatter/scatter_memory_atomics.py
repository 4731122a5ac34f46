"""How atomic instructions of a GPU scatter in memory: along an axis whose lines no block has room for, and slices that
rows of indices name. Updates are joined as numbers whose order does not matter, so the result is the same in every
run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.moves.gather import tuples_text
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.kernels.scatter.scatter_atomics import is_there, refuse_updates
from bolt_build.families.portable.kernels.scatter.scatter_claims import MOST_SCRATCH
from bolt_build.families.portable.kernels.scatter.scatter_lines import parameters, refuse_apart
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.targets import Gpu, Target

_MOST, _SUMMED = 0x7FFFFFFF, 1 << 22
"""What a signed number of 32 bits holds, and updates of which a sum has room in 64 bits (`MemorySum`)."""
_FOUR, _LONG = 4, 8
"""Elements that share a byte for what is no number, and bytes that atomic instructions change at most."""


@dataclass(frozen=True)
class AtomicTile:
    """The kernel has no sizes to choose."""

    @property
    def parameters(self) -> Named:
        return ()

    @property
    def settings(self) -> Named:
        return ()

    @classmethod
    def read(cls, reader: Reader) -> AtomicTile:
        return cls()


def _adds_halves(problem: KernelProblem) -> bool:
    op = problem.op
    assert isinstance(op, (ScatterElements, ScatterND))
    return op.reduction == "add" and problem.inputs[0].format.dtype is DType.F16


def _functions(problem: KernelProblem) -> str:
    """C++ of how updates are joined in memory."""
    op, data = problem.op, problem.inputs[0].format.dtype
    assert isinstance(op, (ScatterElements, ScatterND))
    if op.reduction == "add":
        return "bolt::portable::MemorySum" if _adds_halves(problem) else f"bolt::portable::MemoryInteger<{ctype(data)}>"
    return f"bolt::portable::MemoryExtreme<{ctype(data)}, {str(op.reduction == 'max').lower()}>"


def _held(problem: KernelProblem) -> int:
    """Bytes of an element while updates are joined."""
    return _LONG if _adds_halves(problem) else max(4, problem.inputs[0].format.dtype.nbytes)


def _scratch(problem: KernelProblem) -> int:
    fours = -(-problem.inputs[0].type.elements // _FOUR)
    return fours * _FOUR * _held(problem) + -(-fours // 4) * 4


def _joined(problem: KernelProblem) -> int:
    """Elements of updates."""
    return problem.inputs[2].type.elements


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    op = problem.op
    assert isinstance(op, (ScatterElements, ScatterND))
    if op.reduction == "none":
        return "updates that replace elements are not joined"
    if (reason := refuse_updates(problem, _LONG)) is not None:
        return reason
    if (scratch := _scratch(problem)) > MOST_SCRATCH:
        return Reason("takes {} bytes beside its tensors, at most {} are kept", scratch, MOST_SCRATCH)
    if (most := max(problem.inputs[0].type.elements, _joined(problem))) > _MOST:
        return Reason("{} elements are more than the {} that it counts", most, _MOST)
    indices = problem.inputs[1].shape
    many = indices[op.axis] if isinstance(op, ScatterElements) else prod(indices[op.batch_dims : -1])
    if _adds_halves(problem) and many > _SUMMED:
        return Reason("{} updates of an element are more than the {} that it has room for", many, _SUMMED)
    return None


def _refuse_lines(problem: KernelProblem, gpu: Gpu) -> str | None:
    return refuse_apart(problem) or _refuse(problem, gpu)


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[AtomicTile]:
    yield AtomicTile()


_REACHED, _LAUNCHES, _WAIT = 0.7, 3, 0.9e-6
"""The part of the bandwidth; kernels one after the other, and seconds in which one's threads wait."""
_UPDATE, _BESIDE, _SLICE = {4: 6.5e-12, 8: 7.5e-12}, 1.5, 0.5
"""Seconds of a GPU for an update that is joined with a number of so many bytes, while these are in L2; how much more
they are, as a part of L2 that such numbers take; and how much less where neighbours go to neighbours. They follow ten
kernels of an H200, off by up to a fifth."""


def _seconds(problem: KernelProblem, tile: AtomicTile, target: Target) -> float:
    scratch, gpu = _scratch(problem), target.gpu
    assert gpu is not None, "atomic instructions are a GPU's"
    memory = moved(problem.nbytes + 2 * scratch, target) / _REACHED
    each = _UPDATE[_held(problem)] * (1 + _BESIDE * scratch / gpu.l2)
    each *= _SLICE if isinstance(problem.op, ScatterND) else 1.0
    both = memory + _joined(problem) * each
    return float(both + _LAUNCHES * (OVERLAPPED * target.launch_seconds + _WAIT))


_HEADER = ("bolt_portable/cuda/scatter/scatter_memory_atomics.h",)


def _emit_elements(problem: KernelProblem, tile: AtomicTile, at: StepExpressions) -> StepCode:
    types = f"{_functions(problem)}, {ctype(problem.inputs[1].format.dtype)}"
    at, member = with_scratch(problem, _scratch(problem), at)
    given = f"{parameters(problem, 1, 1)}, {', '.join((*at.inputs, *at.outputs))}"
    return StepCode(_HEADER, *member, f"bolt::portable::scatter_atomic_elements<{types}>(r, {given});")


def _emit_slices(problem: KernelProblem, tile: AtomicTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, ScatterND)
    types = f"{_functions(problem)}, {ctype(indices.format.dtype)}"
    at, member = with_scratch(problem, _scratch(problem), at)
    given = f"{tuples_text(data, indices, op.batch_dims)}, {', '.join((*at.inputs, *at.outputs))}"
    return StepCode(_HEADER, *member, f"bolt::portable::scatter_atomic_slices<{types}>(r, {given});")


ELEMENTS: Form[AtomicTile] = Form(
    "atomic_elements",
    is_there,
    _refuse_lines,
    _tiles,
    lambda problem, tile, gpu: None,
    _seconds,
    AtomicTile.read,
    _emit_elements,
)
SLICES: Form[AtomicTile] = Form(
    "atomic_slices",
    is_there,
    _refuse,
    _tiles,
    lambda problem, tile, gpu: None,
    _seconds,
    AtomicTile.read,
    _emit_slices,
)
