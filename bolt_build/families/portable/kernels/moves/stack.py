"""Windows along one axis as channels, and images of all depths."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import MOVED
from bolt_build.families.common.geometry import strides
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.moves.stack import FoldDepth, Stack, UnfoldDepth, around_axis


def _channels_last(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Nothing else moves no element."""
    return (((Layout.CHANNELS_LAST,), Layout.CHANNELS_LAST),)


def _to_channels_last(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """From either layout, for convolutions on tensor cores."""
    return tuple(((source,), Layout.CHANNELS_LAST) for source in (Layout.CHANNELS_LAST, Layout.ROW))


def _refuse(problem: KernelProblem) -> str | None:
    if problem.inputs[0].format.dtype is not problem.outputs[0].format.dtype:
        return "moves elements within one element type alone"
    return no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, source = problem.op, problem.inputs[0]
    assert isinstance(op, Stack)
    before, extent, behind = around_axis(source.shape, op.axis)
    steps = strides(source)
    # Axes in front of the stacked one follow each other in memory, and so do those behind it.
    parameters = struct(
        "bolt::portable::Stack",
        batch=source.shape[0], before=before, extent=extent, behind=behind, channels=source.shape[1],
        image=steps[0], outer=steps[op.axis - 1] if op.axis > 2 else 0, along=steps[op.axis],
        inner=steps[-1] if op.axis < len(steps) - 1 else 0, channel=steps[1],
        to_extent=op.extent, to_channels=op.channels, stride=op.stride, dilation=op.dilation, begin=op.begin,
    )  # fmt: skip
    element = MOVED[source.format.dtype.nbytes]
    call = f"bolt::portable::stack<{element}, {op.count}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/stack.h",), None, "", call)


def _copy(problem: KernelProblem, at: StepExpressions) -> StepCode:
    """All bytes as they are, for where the planner cannot make it a view."""
    output = problem.outputs[0]
    size, count = MOVED[output.format.dtype.nbytes], output.type.elements
    call = f"bolt::portable::concat<{size}>(r, 1, {{{{{at.inputs[0]}, {count}}}}}, {at.outputs[0]});"
    return StepCode(("bolt_portable/move.h",), None, "", call)


_BANDWIDTH = 0.3
"""Of other moves: what an H100 took for 20 to 50 MB, of three depths for each."""

RULES = (
    Rule(
        Stack, _refuse, _emit, lambda problem: 1.0, gpu_bandwidth=lambda problem: _BANDWIDTH, layouts=_to_channels_last
    ),
    *(
        Rule(op, _refuse, _copy, lambda problem: 1.0, layouts=_channels_last, is_view=lambda problem: True)
        for op in (FoldDepth, UnfoldDepth)
    ),
)
