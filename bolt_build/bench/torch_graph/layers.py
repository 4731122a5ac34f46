"""Operators that compute with windows, channels or matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported
from bolt_build.graph.ir import Array, Node, Op
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.norms.normalization import BatchNorm, Lrn
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.windows import Windows

_CONVS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
CONV_CALLS: dict[int, Callable[..., torch.Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
MAX_POOLS: dict[int, Callable[..., torch.Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE_POOLS: dict[int, Callable[..., torch.Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_NORMS: dict[int, type[nn.BatchNorm1d] | type[nn.BatchNorm2d] | type[nn.BatchNorm3d]] = {
    0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d,
}  # fmt: skip


def conv(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Conv)
    rank = spatial_rank(build, node)
    x, pads = build.value(node.inputs[0]), op.pads_begin
    if op.pads_begin != op.pads_end:
        x, pads = padded(build, x, op.pads_begin, op.pads_end, 0.0), (0,) * rank
    held = build.constants(node.inputs[1:])
    if held is None:
        factors = [build.value(name) for name in node.inputs[1:]]
        return build.call(
            CONV_CALLS[rank], x, *factors, stride=op.strides, padding=pads, dilation=op.dilations, groups=op.groups
        )
    weight, bias = held[0], held[1] if len(held) == 2 else None
    layer = _CONVS[rank](
        weight.shape[1] * op.groups, weight.shape[0], tuple(weight.shape[2:]), op.strides, pads, op.dilations,
        op.groups, bias is not None,
    )  # fmt: skip
    return build.layer(layer, x, weight=weight, bias=bias)


def matmul(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, MatMul)
    held = build.constants(node.inputs[1:])
    a = build.value(node.inputs[0])
    if op.transpose_a:
        a = build.call(torch.transpose, a, -1, -2)
    if held is not None and held[0].ndim == 2:
        weight, bias = held[0] if op.transpose_b else held[0].T, held[1] if len(held) == 2 else None
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
        return build.layer(layer, a, weight=weight, bias=bias)
    b = build.value(node.inputs[1])
    if op.transpose_b:
        b = build.call(torch.transpose, b, -1, -2)
    product = build.call(torch.matmul, a, b)
    return build.call(torch.add, product, build.value(node.inputs[2])) if len(node.inputs) == 3 else product


def batch_norm(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, BatchNorm)
    x, rank = build.value(node.inputs[0]), len(build.shape(node.inputs[0])) - 2
    held = build.constants(node.inputs[1:])
    if held is None or rank not in _NORMS:
        scale, bias, mean, variance = (build.value(name) for name in node.inputs[1:])
        return build.call(F.batch_norm, x, mean, variance, scale, bias, False, 0.0, op.epsilon)
    scale_, bias_, mean_, variance_ = held
    layer = _NORMS[rank](len(scale_), eps=op.epsilon)
    return build.layer(layer, x, weight=scale_, bias=bias_, running_mean=mean_, running_var=variance_)


def lrn(build: Builder, node: Node) -> fx.Node:
    """torch and ONNX put the odd channel of an even `size` on different sides: turned around it comes out right."""
    op = node.op
    assert isinstance(op, Lrn)
    x, even = build.value(node.inputs[0]), op.size % 2 == 0
    if len(build.shape(node.inputs[0])) < 3:
        raise Unsupported(f"torch has no local response normalisation of two axes ('{node.name}')")
    if even:
        x = build.call(torch.flip, x, (1,))
    y = build.call(F.local_response_norm, x, op.size, op.alpha, op.beta, op.bias)
    return build.call(torch.flip, y, (1,)) if even else y


def pool(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Pool)
    rank = spatial_rank(build, node)
    x = build.value(node.inputs[0])
    plain = op.pads_begin == op.pads_end and all(2 * p <= k for p, k in zip(op.pads_begin, op.kernel, strict=True))
    shape = build.shape(node.inputs[0])[2:]
    if op.mode == "max":
        if plain:
            return build.call(
                MAX_POOLS[rank], x, op.kernel, op.strides, op.pads_begin, op.dilations, ceil_mode=op.ceil_mode
            )
        x = padded(build, x, *exact_pads(op.windows, shape), float("-inf"))
        return build.call(MAX_POOLS[rank], x, op.kernel, op.strides, 0, op.dilations)
    if plain and set(op.dilations) == {1}:
        return build.call(
            _AVERAGE_POOLS[rank], x, op.kernel, op.strides, op.pads_begin, op.ceil_mode, op.count_include_pad
        )
    return _average(build, node, op, x)


def _average(build: Builder, node: Node, op: Pool, x: fx.Node) -> fx.Node:
    """Averages that torch's pooling does not know, as a sum over each window times what it is to be divided by."""
    shape = build.shape(node.inputs[0])
    channels, rank = shape[1], len(shape) - 2
    x = padded(build, x, *exact_pads(op.windows, shape[2:]), 0.0)
    ones = build.buffer(np.ones((channels, 1, *op.kernel), np.float32))
    total = build.call(CONV_CALLS[rank], x, ones, stride=op.strides, dilation=op.dilations, groups=channels)
    return build.call(torch.mul, total, build.buffer(_shares(op, shape[2:])))


def _shares(op: Pool, spatial: tuple[int, ...]) -> Array:
    """What each window's sum is multiplied with, [1,1,*out]: the average of ones, over how many the window sees."""
    ones, windows = np.ones((1, 1, *spatial), np.float32), op.windows
    out = windows.output_shape(spatial)
    seen = windows.view(windows.pad(ones, out, 0.0), out).sum(axis=tuple(range(-len(out), 0)))
    (averages,) = op.evaluate([ones])
    return np.asarray(averages / np.maximum(seen, 1), np.float32)


def reduce(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Reduce)
    x = build.value(node.inputs[0])
    if not op.axes:
        return x
    if op.mode in ("l1", "l2") and build.is_float(node.inputs[0]):
        return build.call(torch.linalg.vector_norm, x, int(op.mode[1]), op.axes, op.keepdims)
    if op.mode == "prod":
        return _product(build, x, op)
    if op.mode == "log_sum_exp":
        return build.call(torch.logsumexp, x, op.axes, op.keepdims)
    for before in _BEFORE.get(op.mode, ()):
        x = build.call(before, x)
    if op.mode in ("max", "min"):
        return build.call(torch.amax if op.mode == "max" else torch.amin, x, op.axes, op.keepdims)
    if build.is_float(node.inputs[0]):
        total = build.call(torch.mean if op.mode == "mean" else torch.sum, x, op.axes, op.keepdims)
        return build.call(torch.log, total) if op.mode == "log_sum" else total
    total = build.call(torch.sum, x, op.axes, op.keepdims, dtype=build.dtype(node.inputs[0]))
    if op.mode != "mean":
        return total
    shape = build.shape(node.inputs[0])
    return build.call(torch.div, total, prod(shape[axis] for axis in op.axes), rounding_mode="trunc")


_BEFORE: dict[str, tuple[Callable[..., torch.Tensor], ...]] = {"l1": (torch.abs,), "sum_square": (torch.square,)}
"""What is done to the elements that a mode adds up."""


def _product(build: Builder, x: fx.Node, op: Reduce) -> fx.Node:
    """torch's product is over one axis, and of integers it is of i64."""
    for axis in reversed(op.axes):
        x = build.call(torch.Tensor.type_as, build.call(torch.prod, x, axis, op.keepdims), x)
    return x


def softmax(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Softmax)
    return build.call(F.softmax, build.value(node.inputs[0]), op.axis)


def spatial_rank(build: Builder, node: Node) -> int:
    rank = len(build.shape(node.inputs[0])) - 2
    if rank not in _CONVS:
        raise Unsupported(f"torch has no windows over {rank} spatial axes ('{node.name}')")
    return rank


def padded(build: Builder, x: fx.Node, begin: Sequence[int], end: Sequence[int], value: float) -> fx.Node:
    """`x` [N,C,*spatial] with cells of `value` around its spatial axes."""
    if not any((*begin, *end)):
        return x
    widths = [width for sides in zip(reversed(begin), reversed(end), strict=True) for width in sides]
    return build.call(F.pad, x, widths, "constant", value)


def exact_pads(windows: Windows, spatial: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Begin and end pads that a window without rounding up needs to give what `windows` gives."""
    out = windows.output_shape(spatial)
    end = []
    for axis, extent in enumerate(spatial):
        needed = (out[axis] - 1) * windows.strides[axis] + windows.reach[axis]
        end.append(max(windows.pads_end[axis], needed - extent - windows.pads_begin[axis]))
    return list(windows.pads_begin), end


LAYERS: dict[type[Op], Lower] = {
    Conv: conv, MatMul: matmul, BatchNorm: batch_norm, Lrn: lrn, Pool: pool, Reduce: reduce, Softmax: softmax,
}  # fmt: skip
