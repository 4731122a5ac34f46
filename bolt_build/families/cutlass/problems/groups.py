"""Convolutions with groups of whole loads of channels, as products."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product
from bolt_build.graph.ops.products.conv import Conv


@dataclass(frozen=True)
class GroupedProduct:
    """A convolution with groups of `channels` that become `outputs`, as a product over all channels of the input."""

    product: Product
    channels: int
    outputs: int
    functions: int
    nbytes: int

    @classmethod
    def of(cls, problem: KernelProblem) -> GroupedProduct:
        """Of a problem that no rule refuses."""
        sizes = _of_group(problem, _convolution(problem).groups)
        return cls(conv.product_of(problem), *sizes, instructions(problem.epilogue), problem.nbytes)

    @property
    def groups(self) -> int:
        return self.product.n // self.outputs


def has_groups(problem: KernelProblem) -> bool:
    """True for a convolution with groups of whole loads of channels, and nothing behind it."""
    (first, *behind) = problem.op.sequence
    if behind or not isinstance(first.op, Conv) or first.op.groups == 1:
        return False
    return all(size % ALIGNMENT == 0 for size in _of_group(problem, first.op.groups))


def _convolution(problem: KernelProblem) -> Conv:
    op = problem.op
    assert isinstance(op, Conv)
    return op


def _of_group(problem: KernelProblem, groups: int) -> tuple[int, int]:
    """Channels of the input and of the output that a group has."""
    x, y = problem.inputs[op_operands(problem)[0]], problem.outputs[0]
    return x.shape[1] // groups, y.shape[1] // groups
