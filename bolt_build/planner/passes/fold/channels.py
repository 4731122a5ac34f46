"""Scaling and shifting the output channels of a Conv or MatMul by changing its weights and bias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Node, TensorType
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.rewrite import GraphEditor, joined

PIECE = 1 << 22
"""Elements of a weight that are held in float64 at a time."""

SUFFIX = ".folded"
"""Behind the name of a weight that a pass has changed."""


_LEAST_SCALE = 2.0**-10
"""Weights are some 2^-3 to 2^-6: by less than this, half precision would hold most of them as subnormal numbers."""


def scale_obstacle(constant: Array, scale: Array | None) -> str | None:
    """Why weights in fp16 should not be scaled by a constant, from which the `scale` of each channel follows; None
    where they may be. It is decided by single numbers alone: others may be swapped without a rebuild."""
    if scale is None or constant.size != 1 or not 0.0 < abs(float(scale[0])) < _LEAST_SCALE:
        return None
    return f"fp16 would hold weights times {float(scale[0]):.3g} to fewer digits"


def channel_axis(node: Node, out: TensorType) -> int:
    """The axis of the output along which the rows of the weight count."""
    return 1 if isinstance(node.op, Conv) else out.rank - 1


def channel_vector(array: Array, out: TensorType, axis: int) -> Array | None:
    """`array` as one float64 value a channel, where it broadcasts over all other axes of `out`; None otherwise."""
    shape = (1,) * (out.rank - array.ndim) + array.shape
    if array.ndim > out.rank or any(extent != 1 for at, extent in enumerate(shape) if at != axis):
        return None
    if shape[axis] not in (1, out.shape[axis]):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (out.shape[axis],))


def weight_obstacle(editor: GraphEditor, node: Node) -> str | None:
    """Why the weights of the Conv or MatMul cannot be changed; None where they can."""
    if node.epilogue:
        return f"'{node.name}' already has an epilogue"
    if not editor.is_constant(node.inputs[1]):
        return f"the weight of '{node.name}' is not constant"
    if len(node.inputs) > 2 and not editor.is_constant(node.inputs[2]):
        return f"the bias of '{node.name}' is not constant"
    if isinstance(node.op, MatMul) and editor.type(node.inputs[1]).rank != 2:
        return f"the weight of '{node.name}' is not a matrix"
    return None


def fold_into(editor: GraphEditor, node: Node, absorbed: Node, scale: Array | None, shift: Array | None) -> Node:
    """The Conv or MatMul `node` and `absorbed` behind it as one node: output * scale + shift, a value a channel.

    Computed in float64 and rounded once, to the element type of the weight or, of half precision, to fp32.
    """
    covers, inputs = joined(node.covers, absorbed.covers), folded_inputs(editor, node, scale, shift)
    merged = replace(node, name=absorbed.name, inputs=inputs, outputs=absorbed.outputs, covers=covers)
    editor.remove(node)
    editor.replace(absorbed, merged)
    return merged


def folded_inputs(editor: GraphEditor, node: Node, scale: Array | None, shift: Array | None) -> tuple[str, ...]:
    """The inputs of the Conv or MatMul `node` with which it gives output * scale + shift, a value a channel."""
    out = editor.type(node.outputs[0])
    channels = out.shape[channel_axis(node, out)]
    inputs = [*node.inputs]
    if scale is not None:
        inputs[1] = _scaled_weight(editor, node, scale)
    bias = editor.constant(inputs[2]) if len(inputs) > 2 else None
    if bias is not None or shift is not None:
        total = np.zeros(channels) if bias is None else bias.astype(np.float64)
        total = total if scale is None else total * scale
        total = total if shift is None else total + shift
        base = node.inputs[2] if bias is not None else f"{node.name}.bias"
        name = base if bias is None else _folded_name(base)
        made = editor.new_constant(name, narrowed(total, held_dtype(out.dtype)), out.dtype)
        inputs[2:] = [made]
    return tuple(inputs)


def _scaled_weight(editor: GraphEditor, node: Node, scale: Array) -> str:
    name = node.inputs[1]
    weight, dtype = editor.constant(name), editor.type(name).dtype
    assert weight is not None
    rows_first = isinstance(node.op, Conv) or (isinstance(node.op, MatMul) and node.op.transpose_b)
    factor = scale.reshape(-1, *([1] * (weight.ndim - 1))) if rows_first else scale
    scaled = np.empty(weight.shape, held_dtype(dtype))
    step = max(1, PIECE * len(weight) // max(weight.size, 1))
    for start in range(0, len(weight), step):
        rows = slice(start, start + step)
        with np.errstate(invalid="ignore"):
            product = weight[rows].astype(np.float64) * (factor[rows] if rows_first else factor)
        scaled[rows] = narrowed(product, scaled.dtype)
    return editor.new_constant(_folded_name(name), scaled, dtype)


def _folded_name(name: str) -> str:
    return f"{name.removesuffix(SUFFIX)}{SUFFIX}"
