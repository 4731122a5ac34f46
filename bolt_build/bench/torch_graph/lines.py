"""Operators of lines along an axis."""

from __future__ import annotations

import torch
from torch import fx
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.lines import CumProd, CumSum, Places
from bolt_build.graph.ops.products.det import Det


def line(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Line)
    x = build.value(node.inputs[0])
    if op.function == "log_softmax":
        return build.call(F.log_softmax, x, op.axis)
    best = build.call(torch.argmax, x, op.axis, True)
    return build.call(torch.scatter, build.call(torch.zeros_like, x), op.axis, best, 1.0)


def cumulative(build: Builder, node: Node) -> fx.Node:
    """torch's include the element itself, and go forwards."""
    op = node.op
    assert isinstance(op, CumSum | CumProd)
    x, extent = build.value(node.inputs[0]), build.shape(node.inputs[0])[op.axis]
    if op.reverse:
        x = build.call(torch.flip, x, (op.axis,))
    if op.exclusive:
        # What stands in front of the first is nothing; the last counts nowhere.
        front = build.call(torch.narrow, x, op.axis, 0, min(extent, 1))
        none = build.call(torch.zeros_like if isinstance(op, CumSum) else torch.ones_like, front)
        x = build.call(torch.cat, [none, build.call(torch.narrow, x, op.axis, 0, max(extent - 1, 0))], op.axis)
    dtype = None if build.is_float(node.inputs[0]) else build.dtype(node.inputs[0])
    made = build.call(torch.cumsum if isinstance(op, CumSum) else torch.cumprod, x, op.axis, dtype=dtype)
    return build.call(torch.flip, made, (op.axis,)) if op.reverse else made


def places(build: Builder, node: Node) -> fx.Node:
    """Of one element torch finds the first; of several that are equal topk gives some order."""
    op = node.op
    assert isinstance(op, Places)
    x, extent = build.value(node.inputs[0]), build.shape(node.inputs[0])[op.axis]
    if op.count == 1:
        found = torch.argmax if op.greatest else torch.argmin
        if not op.last:
            return build.call(found, x, op.axis, True)
        turned = build.call(found, build.call(torch.flip, x, (op.axis,)), op.axis, True)
        return build.call(torch.rsub, turned, extent - 1)
    if op.count == extent:
        ordered = build.call(torch.sort, x, stable=True, dim=op.axis, descending=op.greatest)
        return build.call(getattr, ordered, "indices")
    return build.call(getattr, build.call(torch.topk, x, op.count, op.axis, op.greatest), "indices")


def det(build: Builder, node: Node) -> fx.Node:
    """torch has none of sixteen bits."""
    x = build.value(node.inputs[0])
    found = build.call(torch.linalg.det, build.call(torch.Tensor.to, x, torch.float32))
    return build.as_floating(found)


LINES: dict[type[Op], Lower] = {Line: line, CumSum: cumulative, CumProd: cumulative, Places: places, Det: det}
