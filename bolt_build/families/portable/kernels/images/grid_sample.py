"""Images and volumes read at places of a grid."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import strides, three
from bolt_build.families.portable.rule import Layouts, Rule, computed_only, no_epilogue
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.images.grid_sample import GridSample


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images row-major or channels-last; the grid is no image."""
    return tuple(((layout, Layout.ROW), layout) for layout in Layout)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (source, grid), output = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, GridSample)
    steps, to = strides(source), strides(output)
    parameters = struct(
        "bolt::portable::GridSample",
        batch=source.shape[0],
        channels=source.shape[1],
        **{"in": braces(three(source.shape[2:], 1))},
        cells=prod(output.shape[2:]),
        axes=len(source.shape) - 2,
        align_corners=boolean(op.align_corners),
        in_image=steps[0],
        in_channel=steps[1],
        in_step=braces(three(steps[2:], 0)),
        out_image=to[0],
        out_channel=to[1],
        out_cell=to[-1],
    )
    types = ", ".join(COMPUTED[each.format.dtype] for each in (source, grid, output))
    settings = f"bolt::portable::GridMode::{op.mode}, bolt::portable::GridPadding::{op.padding}"
    call = (
        f"bolt::portable::grid_sample<{settings}, {types}>(r, {parameters}, {at.inputs[0]}, {at.inputs[1]}, "
        f"{at.outputs[0]});"
    )
    return StepCode(("bolt_portable/grid_sample.h",), None, "", call)


def _bandwidth(problem: KernelProblem) -> float:
    """As an H200 took for a grid of neighbours: those of a place lie apart, but for the channels of a pixel."""
    return 0.25 if problem.outputs[0].format.layout is Layout.CHANNELS_LAST else 0.14


RULES = (
    Rule(
        GridSample,
        _refuse,
        _emit,
        lambda problem: 0.01,
        gpu_efficiency=0.01,
        gpu_bandwidth=_bandwidth,
        layouts=_layouts,
    ),
)
