"""Operators that move elements."""

from __future__ import annotations

import operator

import numpy as np
import torch
from torch import fx
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower, dtype_of
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose


def reshape(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Reshape)
    return build.call(torch.reshape, build.value(node.inputs[0]), op.shape)


def transpose(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Transpose)
    return build.call(torch.permute, build.value(node.inputs[0]), op.perm)


def concat(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Concat)
    return build.call(torch.cat, [build.value(name) for name in node.inputs], op.axis)


def cut(build: Builder, node: Node) -> fx.Node:
    """torch steps forwards alone: what is read backwards is cut out forwards and turned around."""
    op = node.op
    assert isinstance(op, Slice)
    pieces, backwards = [], []
    for axis, (begin, count, step) in enumerate(zip(op.begin, op.count, op.step, strict=True)):
        if step < 0:
            backwards.append(axis)
            begin += (count - 1) * step if count else 0
        pieces.append(slice(begin, begin + (max(count, 1) - 1) * abs(step) + min(count, 1), abs(step)))
    x = build.call(operator.getitem, build.value(node.inputs[0]), tuple(pieces))
    return build.call(torch.flip, x, tuple(backwards)) if backwards else x


def pad(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Pad)
    x = build.value(node.inputs[0])
    if not any((*op.begin, *op.end)):
        return x
    if op.mode == "constant":
        widths = [width for sides in zip(reversed(op.begin), reversed(op.end), strict=True) for width in sides]
        return build.call(F.pad, x, widths, "constant", op.value)
    # torch mirrors the last axes alone: each padded axis is gathered by the indices that padding gives.
    for axis, extent in enumerate(build.shape(node.inputs[0])):
        if op.begin[axis] or op.end[axis]:
            (indices,) = Pad((op.begin[axis],), (op.end[axis],), op.mode).evaluate([np.arange(extent)])
            x = build.call(torch.index_select, x, axis, build.buffer(indices.astype(np.int64)))
    return x


def cast(build: Builder, node: Node) -> fx.Node:
    """All floating-point data is of one type, so a cast from one such type to another does nothing."""
    x, (given,) = build.value(node.inputs[0]), node.inputs
    to = build.graph.type(node.outputs[0]).dtype
    if to.is_float:
        return x if build.is_float(given) else build.as_floating(x)
    return build.call(torch.Tensor.to, x, dtype_of(to))


def expand(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Expand)
    return build.call(torch.broadcast_to, build.value(node.inputs[0]), op.shape)


def same(build: Builder, node: Node) -> fx.Node:
    return build.value(node.inputs[0])


MOVES: dict[type[Op], Lower] = {
    Reshape: reshape, Transpose: transpose, Concat: concat, Slice: cut, Pad: pad, Identity: same, Cast: cast,
    Expand: expand,
}  # fmt: skip
