"""A kernel problem in a few words: what it computes, over which sizes, with what behind it."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.chains import parts
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.graph.ops.shape import Convert


def in_words(problem: KernelProblem) -> str:
    """For example `3x3 convolution / 2, 64 to 128 channels, 56x56 to 28x28, batch 32 + bias + relu`."""
    return " then ".join(map(_in_words, parts(problem)))


def _in_words(problem: KernelProblem) -> str:
    """Of a single operator."""
    op, shapes = problem.op, [operand.shape for operand in problem.inputs]
    out = problem.outputs[0].shape
    if isinstance(op, Conv):
        return _convolution(op, shapes, out) + _behind(problem, 2)
    if isinstance(op, MatMul):
        return _product(op, shapes, out) + _behind(problem, 2)
    if isinstance(op, Pool):
        text = f"{_sizes(op.kernel)} {op.mode} pooling{_strides(op.strides)}, {shapes[0][1]} channels, "
        return text + _extents(shapes[0], out) + _behind(problem, 1)
    if isinstance(op, Convert):
        return f"{problem.inputs[0].format} to {problem.outputs[0].format}, {_sizes(out)}"
    if isinstance(op, Reduce):
        return f"{op.mode} over axes {', '.join(map(str, op.axes))} of {_sizes(shapes[0])}" + _behind(problem, 1)
    name = op.function if isinstance(op, Activation | Binary) else op.kind
    operands = " and ".join(_sizes(shape) for shape in shapes[: 2 if isinstance(op, Binary) else 1])
    to = "" if shapes[0] == out else f" to {_sizes(out)}"
    return f"{name} of {operands}{to}" + _behind(problem, len(shapes))


def _convolution(op: Conv, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...]) -> str:
    kernel = f"{_sizes(shapes[1][2:])} convolution{_strides(op.strides)}"
    groups = f" in {op.groups} groups" if op.groups > 1 else ""
    dilated = f", dilated {_sizes(op.dilations)}" if any(step > 1 for step in op.dilations) else ""
    return f"{kernel}, {shapes[0][1]} to {out[1]} channels{groups}{dilated}, {_extents(shapes[0], out)}"


def _product(op: MatMul, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...]) -> str:
    inner = shapes[0][-2 if op.transpose_a else -1]
    count = "" if len(out) <= 2 else f"{_sizes(out[:-2])} times "
    return f"{count}{_sizes((*out[-2:-1], inner))} by {_sizes((inner, out[-1]))}"


def _behind(problem: KernelProblem, own: int) -> str:
    """The bias, where the op has one behind its `own` first inputs, and the stages of the epilogue."""
    of_stages = {stage.operand for stage in problem.epilogue}
    has_bias = own == 2 and any(index not in of_stages for index in range(own, len(problem.inputs)))
    stages = (_stage(problem, stage) for stage in problem.epilogue)
    return "".join(f" + {word}" for word in (*(["bias"] if has_bias else []), *stages))


def _stage(problem: KernelProblem, stage: EpilogueOp) -> str:
    if isinstance(stage.op, Activation):
        return stage.op.function
    assert isinstance(stage.op, Binary)
    if stage.operand is not None and problem.inputs[stage.operand].constant:
        return "constant" if stage.op.function == "add" else f"{stage.op.function} by a constant"
    return "residual" if stage.op.function == "add" else f"{stage.op.function} by another tensor"


def _extents(x: tuple[int, ...], out: tuple[int, ...]) -> str:
    change = "" if x[2:] == out[2:] else f" to {_sizes(out[2:])}"
    return f"{_sizes(x[2:])}{change}, batch {out[0]}"


def _strides(strides: tuple[int, ...]) -> str:
    if all(stride == 1 for stride in strides):
        return ""
    return f" / {strides[0] if len(set(strides)) == 1 else _sizes(strides)}"


def _sizes(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents)) or "1"
