"""Matrix products with a constant B operand."""

from __future__ import annotations

from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.epilogue import refuse_epilogue, residual
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Widen, aligned, narrow_loads, too_large
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.matmul import MatMul

_SPACE = "bolt::cutlass_kernels"


def refuse(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes the problem."""
    op = problem.op
    assert isinstance(op, MatMul)
    own = op_operands(problem)
    a, b, c = problem.inputs[own[0]], problem.inputs[own[1]], problem.outputs[0]
    if not all(problem.inputs[index].constant for index in own[1:]) or a.constant:
        return "the B operand and the bias must be constants, to be packed when the engine loads"
    if op.transpose_a or prod(b.shape[:-2]) != 1 or prod(a.shape[:-2]) != prod(c.shape[:-2]):
        return "multiplies rows by one matrix"
    dtype = b.format.dtype
    if dtype not in HALVES or a.format.dtype is not dtype or c.format.dtype not in (dtype, DType.F32):
        return f"takes tensors in f16 or bf16, not in {c.format.dtype.value}"
    if any(operand.format.layout is not Layout.ROW for operand in (a, c)):
        return "takes row-major tensors alone"
    return refuse_epilogue(problem) or too_large(product_of(problem), problem)


def narrow(problem: KernelProblem) -> int | None:
    """Elements of the loads with which the A operand needs no padding, None where it needs none anyway or always
    does."""
    return narrow_loads(problem.inputs[op_operands(problem)[0]].shape[-1])


def product_of(problem: KernelProblem, loads: int = ALIGNMENT) -> Product:
    """All rows of the A operand by the packed B operand. The depth is padded to a multiple of `loads`."""
    op = problem.op
    assert isinstance(op, MatMul)
    own = op_operands(problem)
    a, c = problem.inputs[own[0]], problem.outputs[0]
    m, k, n = prod(c.shape[:-1]), a.shape[-1], c.shape[-1]
    depth = aligned(k, loads)
    dtype = a.format.dtype
    widen = None if depth == k else Widen(m, 1, 1, k, (k, 0, 0, 1), 1, depth, 0, COMPUTED[dtype], dtype)
    shape = (("m", m), ("n", n), ("k", depth))
    if op.transpose_b:
        weights = struct(f"{_SPACE}::Filter", outputs=n, channels=k, rows=1, taps=1, to_taps=1, to_channels=depth)
    else:
        weights = struct(f"{_SPACE}::Factor", n=n, k=k, to_k=depth)
    wide, reads = c.format.dtype is DType.F32, residual(problem) is not None
    return Product("Gemm", m, n, depth, 1, shape, weights, widen, residual=reads, wide=wide, dtype=dtype)
