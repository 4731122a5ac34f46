"""Problems of two products of single pixels, one behind the other: what gates of squeeze and excitation are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.families.base import KernelProblem, Operand, StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.common.epilogue import bias, chain
from bolt_build.families.common.problems import op_operands
from bolt_build.graph.ops.products.conv import Conv

PIXEL = (1, 1)


@dataclass(frozen=True)
class Gate:
    """Both products of a problem, of `channels` channels by `between` to `out`."""

    first: KernelProblem
    second: KernelProblem

    @property
    def images(self) -> int:
        return self.first.inputs[0].shape[0]

    @property
    def channels(self) -> int:
        return self.first.inputs[0].shape[1]

    @property
    def between(self) -> int:
        return self.first.outputs[0].shape[1]

    @property
    def out(self) -> int:
        return self.second.outputs[0].shape[1]

    @property
    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        """The input, the weights of both products, and the output."""
        ones, others = op_operands(self.first), op_operands(self.second)
        weights = self.first.inputs[ones[1]], self.second.inputs[others[1]]
        return self.first.inputs[0], *weights, self.second.outputs[0]

    def arguments(self, at: StepExpressions) -> str:
        """Pointers to the operands, and the stages behind either product, as kernels take them."""
        behind = replace(at, inputs=("", *at.inputs[len(self.first.inputs) :]))
        ones, others = op_operands(self.first), op_operands(self.second)
        between = chain(self.first, at, tuple(bias(self.first, at, index) for index in ones[2:]))
        last = chain(self.second, behind, tuple(bias(self.second, behind, index) for index in others[2:]))
        pointers = (at.inputs[0], at.inputs[ones[1]], behind.inputs[others[1]], at.outputs[0])
        return ", ".join((*pointers, between, last))


def gate_of(problem: KernelProblem) -> Gate | None:
    """The two convolutions, where there are as many and each is of single pixels."""
    problems = parts(problem)
    if len(problems) != 2 or not all(of_pixels(each) for each in problems):
        return None
    return Gate(*problems)


def of_pixels(problem: KernelProblem) -> bool:
    op = problem.op
    if not isinstance(op, Conv) or op.groups != 1 or any((*op.pads_begin, *op.pads_end)):
        return False
    x, weights = (problem.inputs[index] for index in op_operands(problem)[:2])
    return x.shape[2:] == PIXEL and weights.shape[2:] == PIXEL and weights.constant


def lanes_of(extent: int) -> int:
    """Neighbours of a row of so many that are read at once: as many as one load can have."""
    return next(lanes for lanes in (8, 4, 2, 1) if extent % lanes == 0)
