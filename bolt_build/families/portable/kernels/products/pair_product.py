"""Sums of products of rows with rows of weights that every pair of a row and a column picks."""

from __future__ import annotations

from bolt_build.families.base import PART_ALIGNMENT, KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.kernels.products import half_pair_products
from bolt_build.families.portable.kernels.products.pair_product_loops import looped, parameters
from bolt_build.families.portable.rule import Rule, no_epilogue, row_major
from bolt_build.graph.ops.products.pair_product import PairProduct


def _refuse(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, PairProduct)
    if (reason := no_epilogue(problem)) is not None:
        return reason
    factors = [problem.inputs[index] for term in op.terms for index in (term.rows, term.weights)]
    if any(operand.format.dtype not in COMPUTED for operand in (*factors, *problem.outputs)):
        return f"multiplies rows of {', '.join(each.value for each in COMPUTED)} alone"
    if any(operand.format.dtype is not factors[0].format.dtype for operand in factors):
        return "multiplies rows and weights of one type"
    found = looped(problem)
    return found if isinstance(found, str) else None


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    types = ", ".join(COMPUTED[operand.format.dtype] for operand in (problem.inputs[0], problem.outputs[0]))
    call = f"bolt::portable::pair_product<{types}>(r, {parameters(problem, at)}, {at.outputs[0]});"
    return StepCode(("bolt_portable/pair_product.h",), None, "", call)


def _apart(problem: KernelProblem) -> tuple[int, ...]:
    """Rows that a kernel may read where they lie apart."""
    op = problem.op
    assert isinstance(op, PairProduct)

    def able(index: int) -> bool:
        pitches = [0] * len(problem.inputs)
        pitches[index] = problem.inputs[index].row + PART_ALIGNMENT
        return not isinstance(looped(problem, StepExpressions((), (), (), (), tuple(pitches))), str)

    return tuple(term.rows for term in op.terms if not problem.inputs[term.rows].constant and able(term.rows))


RULES = (
    Rule(
        PairProduct,
        _refuse,
        _emit,
        lambda problem: 0.02,
        gpu_efficiency=0.0003,
        layouts=row_major,
        reads_apart=_apart,
        forms=(half_pair_products.FORM,),
    ),
)
