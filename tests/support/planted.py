"""Faults of kernels and of the planner, planted into one step of an engine: what each would leave in place of what is
right. A fault that a step cannot have (a window's, where there is no window) is None there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from planned_engine import Executed, compute, stored

from bolt_build.graph.ir import Array, EpilogueOp
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.norms.normalization import BatchNorm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.engine_plan import Step

EPSILON = 1e-3
"""Another framework's default for BatchNorm, where the model has 1e-5."""
DEPTH = 16
"""Products that are added before a sum in half precision is rounded: what one matrix instruction takes."""


@dataclass(frozen=True)
class Norm:
    """A BatchNorm of the model: what folding needs of it."""

    bias: Array
    variance: Array
    epsilon: float


def norms_of(model: onnx.ModelProto) -> dict[str, Norm]:
    """By the name of the node."""
    arrays = {item.name: item for item in model.graph.initializer}
    return {
        node.name: Norm(
            numpy_helper.to_array(arrays[node.input[2]]), numpy_helper.to_array(arrays[node.input[4]]),
            next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5),
        )
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
    }  # fmt: skip


def with_inputs(done: Executed, changed: Mapping[int, Array]) -> Array:
    return compute(done.step, tuple(changed.get(i, a) for i, a in enumerate(done.inputs)))


def with_problem(done: Executed, **changed: object) -> Array:
    step = replace(done.step, problem=replace(done.step.problem, **changed))  # type: ignore[arg-type]
    return compute(step, done.inputs)


def own_inputs(step: Step) -> tuple[int, ...]:
    """The indices of the operator's own inputs: those that no stage of the epilogue takes."""
    taken = {stage.operand for stage in step.problem.epilogue}
    return tuple(index for index in range(len(step.inputs)) if index not in taken)


def bias_dropped(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    own = own_inputs(done.step)
    if not isinstance(done.step.problem.op, Conv | MatMul) or len(own) < 3:
        return None
    return with_inputs(done, {own[2]: np.zeros_like(done.inputs[own[2]])})


def tap_shifted(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    """The first tap of the window reads its neighbour; a pooling's whole window does."""
    op = done.step.problem.op
    if isinstance(op, Conv) and done.inputs[1].shape[-1] > 1:
        weight = done.inputs[1].copy()
        weight[..., 1] += weight[..., 0]
        weight[..., 0] = 0
        return with_inputs(done, {1: weight})
    if isinstance(op, Pool):
        return with_inputs(done, {0: np.roll(done.inputs[0], 1, axis=-1)})
    return None


def row_stale(done: Executed, norms: Mapping[str, Norm]) -> Array:
    """The last row of the last tile, 16 elements of it, still holds what the row before has."""
    wrong = done.result.copy()
    rows = wrong.reshape(-1, wrong.shape[-1])
    if len(rows) > 1:
        rows[-1, -16:] = rows[-2, -16:]
    else:
        rows[-1, -8:] = rows[-1, :8]
    return wrong


def channels_swapped(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    wrong = done.result.copy()
    axis = 1 if wrong.ndim == 4 or wrong.ndim == 2 else wrong.ndim - 1
    middle = wrong.shape[axis] // 2 if wrong.ndim > 1 else 0
    if middle < 1:
        return None
    order = np.arange(wrong.shape[axis])
    order[[middle - 1, middle]] = order[[middle, middle - 1]]
    return wrong.take(order, axis=axis)


def wrong_epsilon(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    op, own = done.step.problem.op, own_inputs(done.step)
    if isinstance(op, BatchNorm):
        return with_problem(done, op=replace(op, epsilon=EPSILON))
    found = [norms[name] for name in done.step.covers if name in norms]
    if not isinstance(op, Conv) or len(found) != 1 or len(own) < 3:
        return None
    (norm,) = found
    weight, bias = done.inputs[own[1]], done.inputs[own[2]]
    if len(norm.bias) != len(bias):
        return None
    factor = np.sqrt((norm.variance + norm.epsilon) / (norm.variance + EPSILON))
    folded = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    offset = norm.bias + (bias.astype(np.float32) - norm.bias) * factor
    return with_inputs(done, {own[1]: folded.astype(weight.dtype), own[2]: offset.astype(bias.dtype)})


def residual_doubled(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    op = done.step.problem.op
    sums = [s.operand for s in done.step.problem.epilogue if isinstance(s.op, Binary) and s.op.function == "add"]
    if isinstance(op, Binary) and op.function == "add":
        sums.append(1)
    index = next((index for index in sums if index is not None), None)
    return None if index is None else with_inputs(done, {index: done.inputs[index] * 2})


def activation_missing(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    kept = tuple(stage for stage in done.step.problem.epilogue if not isinstance(stage.op, Activation))
    return None if kept == done.step.problem.epilogue else with_problem(done, epilogue=kept)


def wrong_count(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    """A mean that divides by one more than it adds."""
    op = done.step.problem.op
    if not isinstance(op, Reduce) or op.mode != "mean":
        return None
    count = prod(done.inputs[0].shape[axis] for axis in op.axes)
    return stored(done.step.outputs[0], done.result.astype(np.float32) * (count / (count + 1)))


def wrong_axis(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    op = done.step.problem.op
    if isinstance(op, Attention):
        return _attended(done, op, axis=-2)
    if not isinstance(op, Softmax) or op.axis == 0:
        return None
    return with_problem(done, op=replace(op, axis=op.axis - 1))


def scale_missing(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    op = done.step.problem.op
    return with_problem(done, op=replace(op, scale=1.0)) if isinstance(op, Attention) else None


def key_missed(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    """The last key of a tile that is not whole."""
    op = done.step.problem.op
    return _attended(done, op, keys=-1) if isinstance(op, Attention) else None


def heads_mixed(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    """Each head reads its neighbour's values."""
    op = done.step.problem.op
    return _attended(done, op, turned=1) if isinstance(op, Attention) else None


def halved_shares(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    """Powers in fp16, as matrix instructions take them: right where attention is in half precision."""
    op = done.step.problem.op
    return _attended(done, op, powers=np.float16) if isinstance(op, Attention) else None


def _attended(
    done: Executed, op: Attention, axis: int = -1, keys: int | None = None, turned: int = 0,
    powers: type[np.floating[Any]] = np.float32,
) -> Array:  # fmt: skip
    """Unmasked attention with the softmax over `axis`, the first `keys`, values of the head `turned` further on, and
    powers stored so."""
    shape = op.extents([operand.type for operand in done.step.problem.inputs])
    parts = list(done.inputs)
    if op.packed:
        own, kv = op.heads * shape.depth, op.kv_heads * shape.depth
        parts = np.split(done.inputs[0], [own, own + kv], axis=2)
    q, k, v = (
        part.astype(np.float32).reshape(shape.batch, part.shape[1], heads, -1).swapaxes(1, 2)
        for part, heads in zip(parts, (op.heads, op.kv_heads, op.kv_heads), strict=True)
    )
    scores = q @ k.swapaxes(-1, -2)[..., :keys] * np.float32(op.scale)
    power = np.exp(scores - scores.max(axis=axis, keepdims=True))
    total = power.sum(axis=axis, keepdims=True)
    stored_powers = power.astype(powers).astype(np.float32)
    values = np.roll(v, turned, axis=1)[..., :keys, :]
    result = stored_powers @ values / total if axis == -1 else (stored_powers / total) @ values
    rows = result.swapaxes(1, 2).reshape(shape.batch, shape.queries, -1)
    return stored(done.step.outputs[0], rows)


def element_wrong(done: Executed, norms: Mapping[str, Norm]) -> Array:
    """One element is off by a tenth of the tensor's root mean square."""
    wrong = done.result.copy()
    wide = wrong.astype(np.float32)
    wrong.reshape(-1)[wrong.size // 2] += np.asarray(0.1 * np.sqrt(np.mean(wide * wide))).astype(wrong.dtype)
    return wrong


def halved_sums(done: Executed, norms: Mapping[str, Norm]) -> Array | None:
    """Sums of products, kept in fp16 from one instruction to the next."""
    op = done.step.problem.op
    own = own_inputs(done.step)
    if isinstance(op, Conv):
        total = _conv_in_half(op, done.inputs[own[0]], done.inputs[own[1]])
        shape = (-1, *(1,) * (total.ndim - 2))
    elif isinstance(op, MatMul):
        total = _matmul_in_half(op, done.inputs[own[0]], done.inputs[own[1]])
        shape = (-1,)
    else:
        return None
    wide = total.astype(np.float32)
    if len(own) > 2:
        wide = wide + done.inputs[own[2]].astype(np.float32).reshape(shape)
    for stage in done.step.problem.epilogue:
        wide = _staged(stage, wide, done.inputs)
    return stored(done.step.outputs[0], wide)


def _staged(stage: EpilogueOp, result: Array, inputs: tuple[Array, ...]) -> Array:
    if stage.operand is None:
        return stage.op.evaluate([result])[0]
    sides = [result, inputs[stage.operand].astype(np.float32)]
    return stage.op.evaluate(sides[::-1] if stage.swapped else sides)[0]


def _conv_in_half(op: Conv, x: Array, w: Array) -> Array:
    """A few channels of every group at a time, their window's products in fp32, the sum in fp16."""
    each = max(1, DEPTH // prod(w.shape[2:]))
    groups, depth = op.groups, w.shape[1]
    total: Array | None = None
    for first in range(0, depth, each):
        last = min(first + each, depth)
        index = np.concatenate([np.arange(g * depth + first, g * depth + last) for g in range(groups)])
        (part,) = op.evaluate([x[:, index].astype(np.float32), w[:, first:last].astype(np.float32)])
        total = part.astype(np.float16) if total is None else (total + part).astype(np.float16)
    assert total is not None
    return total


def _matmul_in_half(op: MatMul, a: Array, b: Array) -> Array:
    left = (a.swapaxes(-1, -2) if op.transpose_a else a).astype(np.float32)
    right = (b.swapaxes(-1, -2) if op.transpose_b else b).astype(np.float32)
    total: Array = np.zeros((), np.float16)
    for first in range(0, left.shape[-1], DEPTH):
        part = left[..., first : first + DEPTH] @ right[..., first : first + DEPTH, :]
        total = (total + part).astype(np.float16)
    return total


Fault = Callable[[Executed, Mapping[str, Norm]], Array | None]
FAULTS: dict[str, Fault] = {
    "bias dropped": bias_dropped, "tap shifted": tap_shifted, "row stale": row_stale,
    "channels swapped": channels_swapped, "wrong epsilon": wrong_epsilon, "residual doubled": residual_doubled,
    "activation missing": activation_missing, "wrong count": wrong_count, "wrong axis": wrong_axis,
    "element wrong": element_wrong, "sums in half": halved_sums, "scale missing": scale_missing,
    "key missed": key_missed, "heads mixed": heads_mixed, "shares in half": halved_shares,
}  # fmt: skip
