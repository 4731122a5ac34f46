"""Products of integers: both factors of 8 bits, sums of 32, and what follows in fp32 before the result is stored."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepCode, StepExpressions, TensorFormat
from bolt_build.families.common.cxx import boolean, braces, struct
from bolt_build.families.common.stages import may_share
from bolt_build.families.onednn.epilogue import (
    NO_CONSTANT,
    constant,
    emit_epilogue,
    in_place_operand,
    refuse_stages,
)
from bolt_build.families.onednn.epilogue import TYPES as OPERANDS
from bolt_build.families.onednn.matrices import matrices
from bolt_build.families.onednn.rule import Layouts, channels_last, row_major
from bolt_build.graph.ir import Node, TensorType
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.quantised.quantised_product import OWN, QuantisedProduct

TYPES = {DType.F32: "bolt::onednn::Type::f32", DType.I8: "bolt::onednn::Type::s8", DType.U8: "bolt::onednn::Type::u8"}


def layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Images channels last, matrices row-major."""
    op = node.op
    assert isinstance(op, QuantisedProduct)
    return (channels_last if isinstance(op.product, Conv) else row_major)(node, inputs, output)


def staged(problem: KernelProblem) -> KernelProblem:
    """The problem as one of real numbers, with what is computed in front of the rounding as its epilogue."""
    op, (output,) = problem.op, problem.outputs
    assert isinstance(op, QuantisedProduct)
    real = Operand(output.shape, TensorFormat(DType.F32, output.format.layout))
    return replace(problem, outputs=(real,), epilogue=(*op.stages, *problem.epilogue))


def refuse(problem: KernelProblem) -> str | None:
    op = problem.op
    assert isinstance(op, QuantisedProduct)
    if not all(problem.inputs[index].constant for index in range(4, op.own)):
        return "scales of the weights and the bias must be constants, to be packed when the engine loads"
    if not problem.inputs[1].constant and (isinstance(op.product, Conv) or not problem.inputs[2].constant):
        return "a B operand that is no constant has scales that are known, and is none of a convolution"
    if problem.inputs[2].constant is not problem.inputs[3].constant:
        return "scale and zero point must be constants both, or neither"
    real = staged(problem)
    if any(operand.format.dtype not in OPERANDS for operand in problem.inputs[op.own :]):
        return "what is combined with the sums must be in f32 or bf16"
    return refuse_stages(real, axis=op.axis % len(problem.outputs[0].shape))


def share_residual(problem: KernelProblem, names: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Only the operand that is emitted as a sum, where the result is as wide."""
    real = staged(problem)
    return tuple(pair for pair in may_share(problem, names, ()) if pair[0] == in_place_operand(real))


def emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, QuantisedProduct)
    x, w, output = problem.inputs[0], problem.inputs[1], problem.outputs[0]
    known = problem.inputs[2].constant
    at_result = op.own - 2
    numbers = struct(
        "bolt::onednn::Quantised",
        source=TYPES[x.format.dtype],
        weights=TYPES[w.format.dtype],
        destination=TYPES[output.format.dtype],
        source_scale=constant(at, 2) if known else NO_CONSTANT,
        source_zero=constant(at, 3) if known else NO_CONSTANT,
        weights_scale=constant(at, 4),
        weights_zero=constant(at, 5),
        scales=problem.inputs[4].type.elements,
        zeros=problem.inputs[5].type.elements,
        bias=constant(at, OWN) if op.biased else NO_CONSTANT,
        destination_scale=constant(at, at_result) if op.rounds else NO_CONSTANT,
        destination_zero=constant(at, at_result + 1) if op.rounds else NO_CONSTANT,
    )
    epilogue, passed = emit_epilogue(staged(problem), at, _flat(problem))
    factors = at.inputs[:1] if w.constant else at.inputs[:2]
    inputs = ", ".join((*factors, *(() if known else at.inputs[2:4]), *passed))
    weights = constant(at, 1) if w.constant else NO_CONSTANT
    return StepCode(
        ("bolt_onednn/quantised.h",),
        "bolt::onednn::QuantisedProduct",
        f"{_shape(problem)}, {numbers}, {weights}, {epilogue}",
        f"kernel.run(r, {{{inputs}}}, {at.outputs[0]});",
    )


def _flat(problem: KernelProblem) -> tuple[int, ...]:
    """The output's shape as the kernel sees it: rows of a product with one matrix are one axis."""
    op, shape = problem.op, problem.outputs[0].shape
    assert isinstance(op, QuantisedProduct)
    if isinstance(op.product, Conv):
        return shape
    return matrices(op.product, problem.inputs[0].shape, problem.inputs[1].shape, shape)[2]


def _shape(problem: KernelProblem) -> str:
    op, x, w, output = problem.op, problem.inputs[0], problem.inputs[1], problem.outputs[0]
    assert isinstance(op, QuantisedProduct)
    product = op.product
    if isinstance(product, Conv):
        return struct(
            "bolt::onednn::ConvShape",
            type=TYPES[DType.F32],
            source=braces(x.shape),
            weights=braces(w.shape),
            destination=braces(output.shape),
            strides=braces(product.strides),
            dilations=braces(product.dilations),
            pads_begin=braces(product.pads_begin),
            pads_end=braces(product.pads_end),
            groups=product.groups,
        )
    a, b, c = matrices(product, x.shape, w.shape, output.shape)
    return struct(
        "bolt::onednn::MatMulShape",
        type=TYPES[DType.F32],
        a=braces(a),
        b=braces(b),
        c=braces(c),
        transpose_a="false",
        transpose_b=boolean(product.transpose_b),
    )
