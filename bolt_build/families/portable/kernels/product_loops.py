"""Extents and steps of matrix products in batches, as kernels get them."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import aligned
from bolt_build.graph.ops.matmul import MatMul


def batch_loops(problem: KernelProblem) -> tuple[Loop, ...]:
    """Loops over the matrices of a product, with the steps of both factors; 0 where one is broadcast."""
    shape = problem.outputs[0].shape
    sides = []
    for index in op_operands(problem)[:2]:
        operand = problem.inputs[index]
        extents = aligned(operand.shape, len(shape))
        steps = (0,) * (len(shape) - len(operand.shape)) + strides(operand)
        sides.append(tuple(0 if extent == 1 else step for extent, step in zip(extents, steps, strict=True)))
    return merged((Loop(extent, (sides[0][i], sides[1][i])) for i, extent in enumerate(shape[:-2])), 2)


def matmul_parameters(problem: KernelProblem, op: MatMul) -> str:
    """C++ for the extents and steps of a product, whose factors are its op's first two inputs."""
    own = op_operands(problem)
    m, n = problem.outputs[0].shape[-2:]
    k = problem.inputs[own[0]].shape[-2 if op.transpose_a else -1]
    loops = batch_loops(problem)
    return struct(
        "bolt::portable::MatMul",
        batch_rank=len(loops),
        batch=braces(loop.extent for loop in loops),
        a_batch=braces(loop.steps[0] for loop in loops),
        b_batch=braces(loop.steps[1] for loop in loops),
        m=m,
        n=n,
        k=k,
        a_row=1 if op.transpose_a else k,
        a_column=m if op.transpose_a else 1,
        b_row=1 if op.transpose_b else n,
        b_column=k if op.transpose_b else 1,
    )
