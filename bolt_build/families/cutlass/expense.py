"""What the kernels move and compute for a problem, padding and copies included."""

from __future__ import annotations

from math import prod

from bolt_build.families.base import Expense, KernelProblem
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.problems.product import Product, work
from bolt_build.targets import Target


def expense(problem: KernelProblem, product: Product) -> Expense:
    """A copied input is read, written, and read again; zeros that pad the weights count like weights."""
    own = op_operands(problem)
    x, weights = problem.inputs[own[0]], problem.inputs[own[1]]
    bias = sum(problem.inputs[index].nbytes for index in own[2:])
    moved, why = work(problem, product).nbytes + bias, []
    padded, wanted = product.n * product.taps * product.depth, prod(weights.shape)
    if padded > wanted:
        why.append(f"weights padded from {wanted} to {padded} values")
    if product.widen is None:
        moved -= problem.unread
    else:
        moved += x.nbytes + product.widen.nbytes
        why.append(f"input of {x.nbytes} bytes copied to {product.widen.nbytes}")
    zeros = 2 * product.m * (padded - wanted)
    copied, form = (0, "") if product.widen is None else (product.widen.nbytes, product.widen.form)
    return Expense(moved, problem.flops + zeros, "; ".join(why), copied, form)


def copy_seconds(problem: KernelProblem, product: Product, target: Target) -> float:
    """Predicted time of the copy of the input, 0 where there is none."""
    if product.widen is None:
        return 0.0
    moved = problem.inputs[op_operands(problem)[0]].nbytes + product.widen.nbytes
    return moved / target.bandwidth + target.launch_seconds
