"""The largest elements of cells of regions."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.kernels.images.regions import of_regions
from bolt_build.families.portable.rule import Layouts, Rule, no_epilogue
from bolt_build.families.portable.typed import ctype
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.images.roi_pool import RoiPool


def _refuse(problem: KernelProblem) -> str | None:
    if any(operand.format.dtype not in COMPUTED for operand in (*problem.inputs[:2], *problem.outputs)):
        return f"finds the largest of {', '.join(each.value for each in COMPUTED)} alone"
    return no_epilogue(problem)


def _layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images row-major or channels-last."""
    return tuple(((layout, Layout.ROW, Layout.ROW), layout) for layout in Layout)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op, (x, regions, images), output = problem.op, problem.inputs, problem.outputs[0]
    assert isinstance(op, RoiPool)
    extents, apart = of_regions(problem)
    parameters = struct("bolt::portable::RoiPool", **extents, scale=literal(op.scale), **apart)
    types = ", ".join((
        COMPUTED[x.format.dtype], COMPUTED[regions.format.dtype], ctype(images.format.dtype),
        COMPUTED[output.format.dtype],
    ))  # fmt: skip
    call = f"bolt::portable::roi_pool<{types}>(r, {parameters}, {', '.join(at.inputs)}, {at.outputs[0]});"
    return StepCode(("bolt_portable/roi_pool.h",), None, "", call)


def _guess(problem: KernelProblem) -> float:
    """A guess: pixels of a cell lie apart. Nobody has timed it."""
    return 0.3


RULES = (
    Rule(
        RoiPool, _refuse, _emit, lambda problem: 0.01, gpu_efficiency=0.002, gpu_bandwidth=_guess, layouts=_layouts,
    ),
)  # fmt: skip
