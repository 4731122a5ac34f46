"""Problems of two operators in one kernel, such as two products or a convolution and a pooling: made of the problems of
both, and taken apart into them again."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.families.base import KernelProblem, Operand, TensorFormat
from bolt_build.families.common.problems import op_operands
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.ops.moves.stack import UnfoldDepth
from bolt_build.graph.ops.products.chain import Averaged, Chain, Kept, Normed


def chained(first: KernelProblem, second: KernelProblem) -> KernelProblem:
    """One problem that does what `first` and then `second`, whose input 0 is the first's output, do.

    The operands of the first, then those of the second without its input 0, each in their order; what the first reads
    is all that may be padded. Raises ValueError where the second reads what lies between anywhere else.
    """
    return _joined(Chain(first.op, len(first.inputs), first.epilogue, second.op), first, second)


def _joined(op: Chain, first: KernelProblem, second: KernelProblem) -> KernelProblem:
    if op_operands(second)[:1] != (0,):
        raise ValueError("what lies between is the second product's input 0")
    epilogue = tuple(_moved(stage, op.operands - 1) for stage in second.epilogue)
    inputs, outputs = (*first.inputs, *second.inputs[1:]), second.outputs
    if op.keeps:
        outputs = (*first.outputs, *outputs)
    return KernelProblem(op, inputs, outputs, epilogue, second.accumulate, second.target, first.padding)


def averaged(first: KernelProblem, mean: KernelProblem) -> KernelProblem:
    """One problem that leaves what `first` does, and the means of it, as `mean` has them of its only input."""
    op = Averaged(first.op, len(first.inputs), first.epilogue, mean.op)
    outputs = (*first.outputs, *mean.outputs)
    return KernelProblem(op, first.inputs, outputs, (), first.accumulate, first.target, first.padding)


def normed(first: KernelProblem, norm: KernelProblem, move: Transpose | UnfoldDepth | None) -> KernelProblem:
    """One problem of `first` and the normalisation of what it leaves, whose axes a `move` brings into the order of
    memory, or whose images are depths of volumes: what `norm` reads are the same bytes."""
    both = chained(first, norm)
    op = Normed(first.op, len(first.inputs), first.epilogue, norm.op, move)
    return replace(both, op=op)


def kept(first: KernelProblem, second: KernelProblem) -> KernelProblem:
    """As `chained`, and what `first` leaves is an output as well, the one in front."""
    return _joined(Kept(first.op, len(first.inputs), first.epilogue, second.op), first, second)


def parts(problem: KernelProblem) -> tuple[KernelProblem, ...]:
    """The problems of single operators that one stands for, one behind the other, with what lies between stored like
    the output: itself where it is no chain. Moves of axes that leave all bytes where they are, are none of them."""
    if not isinstance(problem.op, Chain):
        return (problem,)
    first, second = halves(problem)
    return (*parts(first), *parts(second))


def halves(problem: KernelProblem) -> tuple[KernelProblem, KernelProblem]:
    """What a chain is made of: the problem in front of its last operator, and that one's."""
    op = problem.op
    assert isinstance(op, Chain), op
    own = [problem.inputs[index].type for index in op_operands(problem)]
    format = read = problem.outputs[0].format
    rows = isinstance(op.second, Reduce) and not op.second.keepdims and not op.keeps
    if rows or (isinstance(op, Normed) and op.move is not None):
        # Results are rows, what lies between is images, as what is read.
        format = TensorFormat(format.dtype, problem.inputs[0].format.layout)
    between = Operand(op.inner(own).shape, format)
    first = KernelProblem(
        op.first, problem.inputs[: op.operands], (between,), op.between, problem.accumulate, problem.target,
        problem.padding,
    )  # fmt: skip
    if isinstance(op, Normed):
        between = Operand(op.moved(own).shape, read)
    second = replace(
        problem, op=op.second, inputs=(between, *problem.inputs[op.operands :]), outputs=problem.outputs[-1:],
        epilogue=tuple(_moved(stage, 1 - op.operands) for stage in problem.epilogue), padding=None,
    )  # fmt: skip
    return first, second


def _moved(stage: EpilogueOp, by: int) -> EpilogueOp:
    """The stage with its operand `by` places further on."""
    return stage if stage.operand is None else replace(stage, operand=stage.operand + by)
