"""What is normalised in front of a product: which rows, by what, and what of it is folded into the weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.chains import parts
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.epilogue import refuse_channels
from bolt_build.families.cutlass.problems.product import Product
from bolt_build.families.cutlass.problems.products import product_of, refuse_problem
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.matmul import MatMul

CENTRED = {"variance": True, "rms": False}
"""By mean and variance, or by the mean of squares."""


@dataclass(frozen=True)
class Prenormed:
    """A product of rows that are normalised first: inputs of the problem by their indices. `vectors` are a scale and a
    shift a column, or the scale alone, or neither."""

    product: Product
    norm: Norm
    vectors: tuple[int, ...]

    @property
    def centred(self) -> bool:
        return CENTRED[self.norm.statistic]


def refuse_prenorm(problem: KernelProblem) -> str | None:
    """A reason why no kernel normalises the product's rows as it loads them, whatever its tile."""
    first, second = parts(problem)
    norm = first.op
    assert isinstance(norm, Norm)
    if not isinstance(second.op, MatMul):
        return f"{second.op.kind} behind {first.op.kind} does not multiply its rows"
    if norm.statistic not in CENTRED:
        return f"normalises by variance or by the mean of squares, not by '{norm.statistic}'"
    x = first.inputs[0]
    if norm.axes != (len(x.shape) - 1,) or norm.groups != 1:
        return "normalises over something else than the rows of the product"
    if first.epilogue:
        return "another function stands between the normalisation and the product"
    columns = x.shape[-1]
    vectors = [first.inputs[index] for index in op_operands(first)[1:]]
    if not all(each.constant and each.shape[-1:] == (columns,) and prod(each.shape) == columns for each in vectors):
        return "scale and bias are constants of one number a column"
    if (reason := refuse_problem(second) or refuse_channels(second)) is not None:
        return within("the product", reason)
    product = product_of(second)
    if x.constant or x.format.dtype is not product.dtype or x.format.layout is not Layout.ROW:
        return f"normalises tensors in {product.dtype.value}/row, not {'constants' if x.constant else f'in {x.format}'}"
    if problem.outputs[0].format.dtype is not product.dtype:
        return f"stores {product.dtype.value}, not {problem.outputs[0].format.dtype.value}"
    if product.depth % STEP or product.depth != columns:
        return Reason("takes statistics of whole steps of {} columns, {} are none", STEP, columns)
    return None


STEP = 32
"""Columns of the shortest step."""


def prenormed(problem: KernelProblem) -> Prenormed:
    """A problem that `refuse_prenorm` does not refuse."""
    first, second = parts(problem)
    assert isinstance(first.op, Norm)
    return Prenormed(product_of(second), first.op, op_operands(first)[1:])
