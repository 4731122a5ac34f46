"""What a step of a plan computes, in a few words: the kinds that tables of steps are made by.

A step's operators stand behind each other, joined by " + "; what an epilogue does is left out. A convolution is told by
its window and its groups.
"""

from __future__ import annotations

from collections.abc import Iterator

from bolt_build.families.base import KernelProblem
from bolt_build.graph.ir import Op, TensorType
from bolt_build.graph.ops.products.conv import Conv


def kind_of(problem: KernelProblem) -> str:
    """For example "1x1 conv + depthwise 3x3 conv"."""
    return " + ".join(_word(op, types) for op, types in members(problem))


def members(problem: KernelProblem) -> Iterator[tuple[Op, tuple[TensorType, ...]]]:
    """Each operator of a problem with the types that it reads, without the operands of stages behind it."""
    through: tuple[TensorType, ...] = ()
    for call in problem.calls:
        stages = {stage.operand for stage in call.stages}
        types = (*through, *(problem.inputs[index].type for index in call.inputs if index not in stages))
        yield call.op, types
        if call is not problem.calls[-1]:  # biases are wider than what they are added to
            through = call.op.infer([TensorType(types[0].dtype, each.shape) for each in types])[-1:]


def _word(op: Op, types: tuple[TensorType, ...]) -> str:
    if not isinstance(op, Conv):
        return op.kind
    window = "x".join(map(str, types[1].shape[2:]))
    if op.groups == 1:
        return f"{window} conv"
    return f"{'depthwise' if types[1].shape[1] == 1 else 'grouped'} {window} conv"
