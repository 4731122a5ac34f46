"""Normalisations by statistics of the data itself: torch's own where it has one, arithmetic otherwise."""

from __future__ import annotations

import torch
from torch import fx
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.norms.norm import Norm


def norm(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Norm)
    if op.groups != 1:
        return _by_groups(build, node, op)
    shape, x = build.shape(node.inputs[0]), build.value(node.inputs[0])
    trailing = op.axes == tuple(range(len(shape) - len(op.axes), len(shape)))
    whole = shape[len(shape) - len(op.axes) :]
    if op.statistic == "variance" and trailing and all(build.shape(name) == whole for name in node.inputs[1:]):
        weight = [build.value(name) for name in node.inputs[1:]]
        return build.call(F.layer_norm, x, whole, *weight, eps=op.epsilon)
    return _scaled(build, node, _normalised(build, op, x))


def _by_groups(build: Builder, node: Node, op: Norm) -> fx.Node:
    rank = len(build.shape(node.inputs[0]))
    if op.statistic != "variance" or op.axes != tuple(range(1, rank)):
        raise Unsupported(f"torch normalises whole groups of channels alone ('{node.name}')")
    y = build.call(F.group_norm, build.value(node.inputs[0]), op.groups, eps=op.epsilon)
    return _scaled(build, node, y)


def _normalised(build: Builder, op: Norm, x: fx.Node) -> fx.Node:
    if op.statistic in ("l1", "l2"):
        length = build.call(torch.linalg.vector_norm, x, int(op.statistic[1]), op.axes, True)
        # 0 where everything is.
        return build.call(torch.nan_to_num, build.call(torch.div, x, length), 0.0)
    apart = x
    if op.statistic in ("variance", "deviation"):
        apart = build.call(torch.sub, x, build.call(torch.mean, x, op.axes, True))
    mean = build.call(torch.mean, build.call(torch.square, apart), op.axes, True)
    x = x if op.statistic == "deviation" else apart
    return build.call(torch.mul, x, build.call(torch.rsqrt, build.call(torch.add, mean, op.epsilon)))


def _scaled(build: Builder, node: Node, y: fx.Node) -> fx.Node:
    for apply, name in zip((torch.mul, torch.add), node.inputs[1:], strict=False):
        y = build.call(apply, y, build.value(name))
    return y


NORMS: dict[type[Op], Lower] = {Norm: norm}
