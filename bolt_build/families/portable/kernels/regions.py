"""Images read between their pixels: regions as images of one size, and windows whose taps lie where data say."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import strides
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue
from bolt_build.families.portable.typed import ctype
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.deform_conv import DeformedWindows
from bolt_build.graph.ops.roi_align import RoiAlign

_HEADER = ("bolt_portable/regions.h",)


def _refuse(problem: KernelProblem, images: tuple[Operand, ...]) -> str | None:
    """`images`: the operands that are read and written in floating point."""
    if any(operand.format.dtype not in COMPUTED for operand in images):
        return f"reads between pixels of {', '.join(each.value for each in COMPUTED)} alone"
    return no_epilogue(problem)


def _refuse_regions(problem: KernelProblem) -> str | None:
    return _refuse(problem, (*problem.inputs[:2], *problem.outputs))


def _refuse_windows(problem: KernelProblem) -> str | None:
    return _refuse(problem, (*problem.inputs, *problem.outputs))


def _region_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images row-major or channels-last."""
    return tuple(((layout, Layout.ROW, Layout.ROW), layout) for layout in Layout)


def _window_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images row-major or channels-last; offsets and masks have a row-major image for each tap."""
    return tuple(((layout, *[Layout.ROW] * (len(inputs) - 1)), Layout.ROW) for layout in Layout)


def _emit_regions(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (x, regions, images), output = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, RoiAlign)
    parameters = struct(
        "bolt::portable::RoiAlign",
        images=x.shape[0],
        channels=x.shape[1],
        rows=x.shape[2],
        columns=x.shape[3],
        regions=regions.shape[0],
        height=op.height,
        width=op.width,
        ratio=op.ratio,
        scale=literal(op.scale),
        half=boolean(op.half),
        **dict(zip(("in_image", "in_channel", "in_row", "in_column"), strides(x), strict=True)),
        **dict(zip(("out_region", "out_channel", "out_row", "out_column"), strides(output), strict=True)),
    )
    types = ", ".join((
        boolean(op.maximum), COMPUTED[x.format.dtype], COMPUTED[regions.format.dtype], ctype(images.format.dtype),
        COMPUTED[output.format.dtype],
    ))  # fmt: skip
    call = f"bolt::portable::roi_align<{types}>(r, {parameters}, {', '.join(at.inputs)}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


def _emit_windows(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (x, offsets, *masks), output = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, DeformedWindows)
    parameters = struct(
        "bolt::portable::DeformedWindows",
        images=x.shape[0],
        channels=x.shape[1],
        groups=op.groups,
        rows=x.shape[2],
        columns=x.shape[3],
        height=offsets.shape[2],
        width=offsets.shape[3],
        kernel=braces(op.kernel),
        stride=braces(op.strides),
        begin=braces(op.begin),
        dilation=braces(op.dilations),
        **dict(zip(("in_image", "in_channel", "in_row", "in_column"), strides(x), strict=True)),
    )
    mask = masks[0] if masks else offsets
    types = ", ".join(COMPUTED[each.format.dtype] for each in (x, offsets, mask, output))
    pointers = [*at.inputs, *([] if masks else ["nullptr"])]
    call = f"bolt::portable::deformed_windows<{types}>(r, {parameters}, {', '.join(pointers)}, {at.outputs[0]});"
    return StepCode(_HEADER, None, "", call)


def _guess(problem: KernelProblem) -> float:
    """A guess: neighbours of a place lie apart. Nobody has timed it."""
    return 0.3


RULES = (
    Rule(
        RoiAlign, _refuse_regions, _emit_regions, lambda problem: 0.01, gpu_efficiency=0.002, gpu_bandwidth=_guess,
        layouts=_region_layouts,
    ),
    Rule(
        DeformedWindows, _refuse_windows, _emit_windows, lambda problem: 0.01, gpu_efficiency=0.002,
        gpu_bandwidth=_guess, layouts=_window_layouts,
    ),
)  # fmt: skip
