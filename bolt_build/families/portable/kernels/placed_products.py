"""Matrix products of factors that are read where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain, channel_axis, refuse_stages
from bolt_build.families.portable.kernels import half_products
from bolt_build.families.portable.kernels.product_loops import placed, placed_parameters, refuse_walks, walks_apart
from bolt_build.families.portable.rule import Layouts, Rule, computed_only
from bolt_build.graph.ir import Layout, Node, TensorType
from bolt_build.graph.ops.placed_matmul import PlacedMatMul


def _layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Every one of each factor, and of the output, whose layout stages' operands share."""

    def choices(t: TensorType) -> tuple[Layout, ...]:
        return tuple(Layout) if t.rank >= 3 else (Layout.ROW,)

    def found() -> Iterator[Layouts]:
        for a, b, c in product(*map(choices, (*inputs[:2], output))):
            yield (a, b, *(c if t.rank == output.rank else Layout.ROW for t in inputs[2:])), c

    return tuple(found())


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or refuse_stages(problem) or refuse_walks(problem)) is not None:
        return reason
    return None if channel_axis(problem) is None else "numbers of one axis each do not follow a product that lies apart"


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    found = placed(problem, at)
    assert found is not None
    a, b = found.factors
    operands = (problem.inputs[a], problem.inputs[b], problem.outputs[0])
    types = ", ".join(COMPUTED[operand.format.dtype] for operand in operands)
    call = (
        f"bolt::portable::matmul<{types}>(r, {placed_parameters(found.walks)}, {at.inputs[a]}, {at.inputs[b]}, "
        f"{at.outputs[0]}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/matmul.h",), None, "", call)


RULES = (
    Rule(
        PlacedMatMul,
        _refuse,
        _emit,
        lambda problem: 0.02,
        gpu_efficiency=0.0003,
        layouts=_layouts,
        reads_apart=walks_apart,
        forms=(half_products.FORM,),
    ),
)
