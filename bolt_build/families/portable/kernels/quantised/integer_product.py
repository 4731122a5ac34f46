"""Products and convolutions of integers of 8 bits, with sums of 32."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.geometry import MOST_AXES
from bolt_build.families.portable.kernels.images.windows import conv_layouts, conv_parameters
from bolt_build.families.portable.kernels.products.product_loops import batch_loops, matmul_parameters
from bolt_build.families.portable.rule import Rule, no_epilogue, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.quantised.integer_product import IntegerConv, IntegerMatMul

_HOST, _GPU = 0.2, 0.01
"""Parts of the peak rate that are expected on a host, and of that of tensor cores on a GPU. Guesses."""


def _step(problem: KernelProblem, index: int) -> int:
    """Elements from one zero point to the next: 0 where one is for all."""
    return len(problem.inputs[index].shape)


def _types(problem: KernelProblem) -> str:
    return ", ".join(ctype(problem.inputs[index].format.dtype) for index in range(2))


def _refuse_matmul(problem: KernelProblem) -> str | None:
    count = len(batch_loops(problem))
    if count > MOST_AXES:
        return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES)
    return no_epilogue(problem)


def _emit_matmul(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, IntegerMatMul)
    parameters = struct(
        "bolt::portable::IntegerMatMul",
        of=matmul_parameters(problem, op.product), a_zero=_step(problem, 2), b_zero=_step(problem, 3),
    )  # fmt: skip
    pointers = ", ".join((*at.inputs, at.outputs[0]))
    call = f"bolt::portable::integer_matmul<{_types(problem)}>(r, {parameters}, {pointers});"
    return StepCode(("bolt_portable/integer_matmul.h",), None, "", call)


def _refuse_conv(problem: KernelProblem) -> str | None:
    rank = len(problem.outputs[0].shape)
    if rank > 5:
        return Reason("windows over {} spatial axes; at most 3 are supported", rank - 2)
    return no_epilogue(problem)


def _emit_conv(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, IntegerConv)
    parameters = struct(
        "bolt::portable::IntegerConv", of=conv_parameters(problem, op.product, 0, 1), filter_zero=_step(problem, 3)
    )
    pointers = ", ".join((*at.inputs, *(["nullptr"] if len(at.inputs) == 4 else []), at.outputs[0]))
    call = f"bolt::portable::integer_conv<{_types(problem)}>(r, {parameters}, {pointers});"
    return StepCode(("bolt_portable/integer_conv.h",), None, "", call)


def _efficiency(problem: KernelProblem) -> float:
    return _HOST


RULES = (
    Rule(IntegerMatMul, _refuse_matmul, _emit_matmul, _efficiency, gpu_efficiency=_GPU, layouts=row_major),
    Rule(IntegerConv, _refuse_conv, _emit_conv, _efficiency, gpu_efficiency=_GPU, layouts=conv_layouts),
)
