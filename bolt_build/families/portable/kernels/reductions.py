"""Reductions over axes, local response normalisation."""

from __future__ import annotations

from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.cxx import braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES, Loop, around, merged, strides
from bolt_build.families.portable.kernels.rows import LANES
from bolt_build.families.portable.rule import Layouts, Rule, computed_only, no_epilogue
from bolt_build.families.portable.typed import ctype, is_computed
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.normalization import Lrn
from bolt_build.graph.ops.reduce import Reduce


def _types(problem: KernelProblem) -> str:
    return f"{COMPUTED[problem.inputs[0].format.dtype]}, {COMPUTED[problem.outputs[0].format.dtype]}"


def _reduce_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """The input row-major or channels-last, and the output alike where it has the rank for it."""
    row = ((Layout.ROW,) * len(inputs), Layout.ROW)
    if inputs[0].rank < 3:
        return (row,)
    last = tuple(Layout.CHANNELS_LAST if t.rank == output.rank and t.rank >= 3 else Layout.ROW for t in inputs[1:])
    to = Layout.CHANNELS_LAST if output.rank >= 3 else Layout.ROW
    return (row, ((Layout.CHANNELS_LAST, *last), to))


def _reduce_loops(problem: KernelProblem) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """Kept loops in the order of the output's memory, reduced ones in that of the input's; steps in the input."""
    op, source, output = problem.op, problem.inputs[0], problem.outputs[0]
    assert isinstance(op, Reduce)
    steps = strides(source)
    rank = len(source.shape)
    of_input = tuple(range(rank)) if op.keepdims else tuple(a for a in range(rank) if a not in op.axes)
    channels = channel_axis(problem)
    kept = [
        Loop(source.shape[of_input[axis]], (steps[of_input[axis]],), fixed=axis == channels)
        for axis in memory_axes(len(output.shape), output.format.layout)
        if of_input[axis] not in op.axes
    ]
    order = memory_axes(rank, source.format.layout)
    reduced = [Loop(source.shape[axis], (steps[axis],)) for axis in order if axis in op.axes]
    return merged(kept, 1) if kept else (), merged(reduced, 1) if reduced else ()


def _refuse_reduce(problem: KernelProblem) -> str | None:
    reason = refuse_stages(problem) if is_computed(problem) else _refuse_typed(problem)
    if reason is not None:
        return reason
    most = max(len(loops) for loops in _reduce_loops(problem))
    return Reason("reduces in {} loops, at most {} are supported", most, MOST_AXES) if most > MOST_AXES else None


def _refuse_typed(problem: KernelProblem) -> str | None:
    source, output = (operand.format.dtype for operand in (problem.inputs[0], problem.outputs[0]))
    if source is not output:
        return f"reduces {source.value} to {source.value}, not to {output.value}"
    assert isinstance(problem.op, Reduce)
    if source is DType.BOOL and problem.op.mode not in ("max", "min"):
        return f"has no {problem.op.mode} of booleans"
    if source is not DType.F64 and problem.op.mode in ("l2", "log_sum"):
        return f"has no {problem.op.mode} of integers"
    return no_epilogue(problem)


def _emit_reduce(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Reduce)
    kept, reduced = _reduce_loops(problem)
    parameters = struct(
        "bolt::portable::Reduce",
        kept_rank=len(kept),
        kept=braces(loop.extent for loop in kept),
        kept_stride=braces(loop.steps[0] for loop in kept),
        reduced_rank=len(reduced),
        reduced=braces(loop.extent for loop in reduced),
        reduced_stride=braces(loop.steps[0] for loop in reduced),
        channel_axis=next((i for i, loop in enumerate(kept) if loop.fixed), -1),
    )
    mode = "Reduce" + "".join(part.capitalize() for part in op.mode.split("_"))
    if not is_computed(problem):
        stored = ctype(problem.inputs[0].format.dtype)
        kind = f"bolt::portable::typed::{mode}<bolt::portable::Computed<{stored}>::type>"
        call = f"bolt::portable::typed_reduce<{kind}, {stored}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
        return StepCode(("bolt_portable/typed_reduce.h",), None, "", call)
    call = (
        f"bolt::portable::reduce<bolt::portable::{mode}, {_types(problem)}>(r, {parameters}, {at.inputs[0]}, "
        f"{at.outputs[0]}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/reduce.h",), None, "", call)


def _refuse_lrn(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit_lrn(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Lrn)
    outer, channels, inner = around(problem.outputs[0], 1)
    parameters = struct(
        "bolt::portable::Lrn",
        outer=outer,
        channels=channels,
        inner=inner,
        size=op.size,
        alpha=literal(op.alpha),
        beta=literal(op.beta),
        bias=literal(op.bias),
    )
    call = f"bolt::portable::lrn<{_types(problem)}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/lrn.h",), None, "", call)


_MANY, _LONG, _FEW = 2048, 16384, 16
"""Results from which on a warp has one, elements of one that are work for a block, and those that are a thread's
(`many_results`, `long_rows`, `few_elements`)."""
_BLOCK, _WIDE = 5200.0, 1700.0
"""Bytes that a GPU's memory moves while a block begins and ends: what each of an H200's results took, and what it took
of which a warp has one result."""
_ACROSS, _POSITION = 0.4e-6, 3.4e-10
"""Seconds in which threads that each have some positions put their sums together, and those of a position. Fitted to 82
times of an H200."""
_REACHED, _JOINED = 0.88, 0.3e-6
"""The part of the bandwidth that long sums reach; and seconds in which threads join sums of neighbours."""


_SCATTERED = 0.5
"""A guess at the part of the bandwidth that threads reach which have a result each."""


def _reduce_bandwidth(problem: KernelProblem) -> float:
    """Where the reduced elements are neighbours each result is a block's, which is little work where they are few."""
    kept, reduced = _reduce_loops(problem)
    if not reduced or reduced[-1].steps[0] != 1 or not kept:
        return _REACHED
    results = max(problem.outputs[0].type.elements, 1)
    if len(reduced) == 1 and reduced[0].extent <= _FEW and results >= _MANY:
        return _SCATTERED
    warps = len(reduced) == 1 and results >= _MANY and reduced[-1].extent < _LONG
    block = _BLOCK if reduced[-1].extent % LANES and not warps else _WIDE
    return min(_REACHED, problem.inputs[0].nbytes / results / block)


def _reduce_latency(problem: KernelProblem) -> float:
    """Where the reduced elements are no neighbours, as positions of channels-last images."""
    _, reduced = _reduce_loops(problem)
    if not reduced or reduced[-1].steps[0] == 1:
        return _JOINED
    return _ACROSS + _POSITION * prod(loop.extent for loop in reduced)


RULES = (
    Rule(
        Reduce,
        _refuse_reduce,
        _emit_reduce,
        lambda problem: 0.05,
        gpu_bandwidth=_reduce_bandwidth,
        gpu_latency=_reduce_latency,
        layouts=_reduce_layouts,
    ),
    Rule(Lrn, _refuse_lrn, _emit_lrn, lambda problem: 0.02),
)  # fmt: skip
