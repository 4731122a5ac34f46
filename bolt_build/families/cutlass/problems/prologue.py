"""What happens to the A operand of a product as it is loaded: BatchNorm with an activation, or a gate."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand
from bolt_build.families.common.chains import parts
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.cutlass.epilogue import refuse_channels
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product
from bolt_build.families.cutlass.problems.products import product_of, refuse_problem
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv

CHEAP = ("relu", "leaky_relu", "clip", "hard_sigmoid", "hard_swish", "abs", "neg")
"""Activations of a few instructions, which a kernel computes again for every column of tiles."""


@dataclass(frozen=True)
class Prologue:
    """x * scale + shift and activations, one scale a channel: inputs of the problem by their indices.

    `gate`: a scale is of one image and computed, and nothing follows it. Otherwise scales and shifts are constants of
    all images (`shift` is None where nothing is added). `pixels` are rows of the factor an image has.
    """

    x: int
    scale: int
    shift: int | None
    functions: tuple[EpilogueOp, ...]
    gate: bool
    pixels: int


def refuse_prologue(problem: KernelProblem) -> str | None:
    """A reason why no kernel transforms the A operand of the product as it is loaded, whatever its tile."""
    first, second = parts(problem)
    if not isinstance(second.op, Conv):
        return f"{second.op.kind} behind {first.op.kind} does not multiply its rows"
    found = _prologue(first)
    if isinstance(found, str):
        return found
    if (reason := refuse_problem(second) or refuse_channels(second)) is not None:
        return within("the product", reason)
    product = product_of(second)
    if product.kernel != "Gemm" or product.depth != first.outputs[0].shape[1]:
        return Reason(
            "loads whole rows of {} channels, {} are no multiple or too few", ALIGNMENT, first.outputs[0].shape[1]
        )
    return None


def prologue_of(problem: KernelProblem) -> Prologue:
    """The transformation of a problem that `refuse_prologue` does not refuse."""
    found = _prologue(parts(problem)[0])
    assert isinstance(found, Prologue), found
    return found


def behind(problem: KernelProblem) -> Product:
    """The product of such a problem."""
    return product_of(parts(problem)[1])


def _prologue(first: KernelProblem) -> Prologue | str:
    output = first.outputs[0]
    sides = [index for index in (0, 1) if first.inputs[index].shape == output.shape]
    if not isinstance(first.op, Binary) or first.op.function != "mul" or len(sides) != 1:
        return "transforms what one tensor is multiplied by, one number a channel"
    (x,), scale = sides, 1 - sides[0]
    if (reason := _refuse_x(first.inputs[x], output)) is not None:
        return reason
    pixels = prod(output.shape[2:])
    factor = first.inputs[scale]
    if not factor.constant:
        if factor.shape != (output.shape[0], output.shape[1], *(1,) * (len(output.shape) - 2)):
            return f"a gate of {list(factor.shape)} is not one number a channel of each image"
        if factor.format.dtype is not output.format.dtype:
            return f"takes gates in {output.format.dtype.value}, not in {factor.format.dtype.value}"
        if first.epilogue:
            return "nothing may follow a gate before the product"
        return Prologue(x, scale, None, (), True, pixels)
    functions = list(first.epilogue)
    shift = None
    if functions and isinstance(functions[0].op, Binary) and functions[0].op.function == "add":
        shift = functions.pop(0).operand
    for index in (scale, *([] if shift is None else [shift])):
        if not _a_channel(first.inputs[index], output):
            return f"a scale or shift {list(first.inputs[index].shape)} is no constant of one number a channel"
    for stage in functions:
        if not isinstance(stage.op, Activation):
            return f"between the scale and the product stands '{stage.op.kind}', which is no activation"
        if stage.op.function not in CHEAP:
            return f"'{stage.op.function}' takes too many instructions to be computed for every column of tiles again"
    return Prologue(x, scale, shift, tuple(functions), False, pixels)


def _refuse_x(x: Operand, output: Operand) -> str | None:
    dtype = output.format.dtype if output.format.dtype in HALVES else DType.F16
    if x.constant or x.format.dtype is not dtype or x.format.layout is not Layout.CHANNELS_LAST:
        return (
            f"transforms tensors in {dtype.value}/channels_last, not {'constants' if x.constant else f'in {x.format}'}"
        )
    return None


def _a_channel(operand: Operand, output: Operand) -> bool:
    """True for constants in fp32 that have one number for each channel of the output, which is axis 1."""
    rank = len(output.shape)
    if len(operand.shape) > rank or not operand.constant or operand.format.dtype is not DType.F32:
        return False
    shape = (1,) * (rank - len(operand.shape)) + operand.shape
    return shape == (1, output.shape[1], *(1,) * (rank - 2))
