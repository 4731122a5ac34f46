"""Operands whose rows lie apart: slices of channels, which are read where they lie."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.problems.product import Product
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.conv import Conv


def reads_apart(problem: KernelProblem, product: Product, x: int, added: int | None) -> tuple[int, ...]:
    """Inputs whose rows kernels read as far apart as they lie: what `product`, the first of the problem, takes as its
    A operand, which is input `x`; and the residual, input `added`.

    Not an A operand whose row is a whole image, or that lies in planes.
    """
    given = problem.inputs[x]
    last = len(given.shape) > 2 and any(isinstance(part.op, Conv) for part in parts(problem))
    as_rows = given.format.layout is (Layout.CHANNELS_LAST if last else Layout.ROW)
    whole = product.widen is not None or product.kernel == "Conv" or product.depth == given.row
    found = {x} if as_rows and whole and not given.constant else set()
    return tuple(sorted(found if added is None else {*found, added}))


def between_rows(at: StepExpressions, added: int | None = None) -> tuple[tuple[str, int], ...]:
    """The arguments of a product whose result, or residual `added`, has rows that lie apart: none where they are
    dense."""
    apart = 0 if added is None else at.input_pitch(added)
    found = (("y_row", at.pitch(0)), ("residual_row", apart))
    return tuple((name, pitch) for name, pitch in found if pitch)
