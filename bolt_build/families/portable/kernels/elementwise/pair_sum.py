"""Sums of terms that every pair of a row and a column has, some picked by indices."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.rule import Rule, no_epilogue, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.elementwise.pair_sum import PairSum, PairTerm
from bolt_build.targets import Gpu

SIDE = 64
"""Rows and columns of a tile: those of the kernel's header."""
_STATIC = 48 << 10
"""Bytes of shared memory that a kernel has without asking for them."""


def _refuse(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, PairSum)
    if (reason := no_epilogue(problem)) is not None:
        return reason
    data = (problem.inputs[term.data] for term in op.terms)
    if any(operand.format.dtype not in COMPUTED for operand in (*data, *problem.outputs)):
        return f"adds up terms of {', '.join(each.value for each in COMPUTED)} alone"
    count = len(_planes(problem))
    return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


def _refuse_gpu(problem: KernelProblem, gpu: Gpu) -> str | None:
    """A block keeps a tile of each term that it picks or turns."""
    op = problem.op
    assert isinstance(op, PairSum)
    kept = [term for term in op.terms if _staged(term)]
    shared = sum(SIDE * (SIDE + 1) * problem.inputs[term.data].format.dtype.nbytes for term in kept)
    if shared <= _STATIC:
        return None
    return Reason("{} terms that are picked or turned take {} bytes of shared memory", len(kept), shared)


def _staged(term: PairTerm) -> bool:
    return term.indices is not None or term.turned


def _steps(problem: KernelProblem, term: PairTerm) -> tuple[int, ...]:
    """The data's elements between neighbours along each axis of the result as its lines have it; 0 where they are
    repeated, and what is between those that are picked of a line at the end."""
    operand, rank = problem.inputs[term.data], len(problem.outputs[0].shape)
    shape, steps = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand)
    last = rank - 1 if term.indices is not None else rank
    return tuple(
        0 if extent == 1 and axis < last else step for axis, (extent, step) in enumerate(zip(shape, steps, strict=True))
    )


def _planes(problem: KernelProblem) -> tuple[Loop, ...]:
    """Loops over the matrices of the result, with each term's steps."""
    op, shape = problem.op, problem.outputs[0].shape
    assert isinstance(op, PairSum)
    sides = [_steps(problem, term) for term in op.terms]
    loops = [Loop(shape[axis], tuple(side[axis] for side in sides)) for axis in range(len(shape) - 2)]
    return merged(loops, len(sides))


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, output = problem.op, problem.outputs[0]
    assert isinstance(op, PairSum)
    terms, planes = tuple(op.terms), _planes(problem)
    kinds, data, indices, lines, places, lengths = [], [], [], [], [], []
    for term in terms:
        operand, steps = problem.inputs[term.data], _steps(problem, term)
        named = "void" if term.indices is None else ctype(problem.inputs[term.indices].format.dtype)
        kinds.append(f"bolt::portable::PairTerm<{COMPUTED[operand.format.dtype]}, {named}, {boolean(term.turned)}>")
        data.append(at.inputs[term.data])
        indices.append("nullptr" if term.indices is None else at.inputs[term.indices])
        lines.append(steps[-2])
        places.append(steps[-1])
        lengths.append(operand.shape[-1] if operand.shape else 1)
    parameters = struct(
        f"bolt::portable::PairSum<{len(terms)}>",
        rank=len(planes),
        extent=braces(loop.extent for loop in planes),
        step=braces(braces(loop.steps[side] for loop in planes) for side in range(len(terms))),
        rows=output.shape[-2],
        columns=output.shape[-1],
        line=braces(lines),
        place=braces(places),
        length=braces(lengths),
        factor=braces(literal(term.factor) for term in terms),
        data=braces(data),
        indices=braces(indices),
    )
    types = ", ".join([COMPUTED[output.format.dtype], *kinds])
    call = f"bolt::portable::pair_sum<{types}>(r, {parameters}, {at.outputs[0]});"
    return StepCode(("bolt_portable/pair_sum.h",), None, "", call)


_WAIT, _TURN = 0.4e-6, 0.8e-6
"""Seconds in which a GPU's elements wait for tiles of shared memory, and in each term that picks for its indices and
what these name."""
_WHOLE, _ODD = 0.7, 0.15
"""The part of a GPU's bandwidth that is reached where eight results are stored at once, and where they are stored one
by one: with the above what an H100 took for seven sums, off by up to a tenth."""


def _waits(problem: KernelProblem) -> float:
    op = problem.op
    assert isinstance(op, PairSum)
    return _WAIT + _TURN * sum(op.picked)


def _bandwidth(problem: KernelProblem) -> float:
    return _ODD if problem.outputs[0].shape[-1] % 8 else _WHOLE


RULES = (
    Rule(
        PairSum, _refuse, _emit, lambda problem: 0.05, gpu_efficiency=0.05, gpu_latency=_waits,
        gpu_bandwidth=_bandwidth,
        layouts=row_major, refuse_gpu=_refuse_gpu,
    ),
)  # fmt: skip
