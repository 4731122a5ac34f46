"""The problem of a part of a batch: of what computes each image by itself, the same for fewer images.

A tensor's part is a run of its bytes, for the batch is outermost in memory, whatever the layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bolt_build.families.base import KernelProblem, Operand
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.resample import Resample
from bolt_build.graph.ops.images.resize import Interpolate
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.shape import Concat, Convert
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.normalization import Lrn
from bolt_build.graph.ops.products.conv import Conv

_BY_IMAGE: dict[type[Op], Callable[[Op], bool]] = {
    Activation: lambda op: True,
    Binary: lambda op: True,
    Concat: lambda op: isinstance(op, Concat) and op.axis != 0,
    Conv: lambda op: True,
    Convert: lambda op: True,
    Interpolate: lambda op: isinstance(op, Interpolate) and op.axis != 0,
    Lrn: lambda op: True,
    Norm: lambda op: isinstance(op, Norm) and 0 not in op.axes,
    Pool: lambda op: True,
    Reduce: lambda op: isinstance(op, Reduce) and 0 not in op.axes,
    Resample: lambda op: isinstance(op, Resample) and 0 not in op.axes,
    Softmax: lambda op: isinstance(op, Softmax) and op.axis != 0,
}
"""Operators that compute each image of a batch by itself, where that is so, and have no numbers that say how many."""

_OF_IMAGES = (Binary, Concat, Norm)
"""Operators of which each input may have the batch; a constant that has it, a class token for each image say, has no
parts. Of others the first one has; those behind it, such as filters that are an input of the model, may begin with as
many as the batch has and are of all images."""


def part_of(problem: KernelProblem, parts: int) -> KernelProblem | None:
    """The problem for one of `parts` equal parts of the batch; None where images of it are not computed by
    themselves."""
    by_image = _BY_IMAGE.get(type(problem.op))
    if by_image is None or not by_image(problem.op) or len(problem.op.sequence) > 1:
        return None
    shape = problem.outputs[0].shape
    if not shape or not shape[0] or shape[0] % parts or not all(_has(each, shape) for each in problem.outputs):
        return None
    epilogue = {stage.operand for stage in problem.epilogue}
    each_has = {*range(len(problem.inputs))} if isinstance(problem.op, _OF_IMAGES) else epilogue
    inputs = []
    for index, each in enumerate(problem.inputs):
        if each.constant:
            if index in each_has and len(each.shape) >= len(shape) and each.shape[0] != 1:
                return None
            inputs.append(each)
        elif index and index not in epilogue and not isinstance(problem.op, _OF_IMAGES):
            return None
        elif _has(each, shape) or (index == 0 and len(each.shape) > len(shape) and each.shape[0] == shape[0]):
            inputs.append(_part(each, parts))
        else:
            return None
    return replace(problem, inputs=tuple(inputs), outputs=tuple(_part(each, parts) for each in problem.outputs))


def _has(operand: Operand, shape: tuple[int, ...]) -> bool:
    """True where the operand has the batch of `shape` as the first of as many axes."""
    return len(operand.shape) == len(shape) > 1 and operand.shape[0] == shape[0]


def _part(operand: Operand, parts: int) -> Operand:
    return replace(operand, shape=(operand.shape[0] // parts, *operand.shape[1:]))
