"""How oneDNN sees the factors of a matrix product."""

from __future__ import annotations

from math import prod

from bolt_build.families.common.stages import aligned
from bolt_build.graph.ops.products.matmul import MatMul

Shape = tuple[int, ...]


def matrices(op: MatMul, left: Shape, right: Shape, c: Shape) -> tuple[Shape, Shape, Shape]:
    """Dims of a, b and c as they are multiplied, of one rank; one matrix where b is one and a can be seen as one."""
    depth = left[-2 if op.transpose_a else -1]
    if prod(right[:-2]) == 1 and not op.transpose_a and prod(left[:-2]) == prod(c[:-2]):
        rows = prod(c[:-1])
        return (rows, depth), (depth, c[-1]), (rows, c[-1])
    a = (*aligned(left, len(c))[:-2], c[-2], depth)
    b = (*aligned(right, len(c))[:-2], depth, c[-1])
    return a, b, c
