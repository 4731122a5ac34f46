"""Windows beside those of convolutions and pools: places of the greatest elements, and norms."""

from __future__ import annotations

import operator
from math import prod

import numpy as np
import torch
from torch import fx

from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported
from bolt_build.bench.torch_graph.layers import CONV_CALLS, MAX_POOLS, exact_pads, padded, spatial_rank
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool_places import PoolPlaces


def pool_places(build: Builder, node: Node) -> fx.Node:
    """torch counts in each channel by itself, ONNX through the whole tensor."""
    op = node.op
    assert isinstance(op, PoolPlaces)
    rank, (name,) = spatial_rank(build, node), node.inputs
    half = all(2 * p <= k for p, k in zip(op.pads_begin, op.kernel, strict=True))
    if op.column_major or op.pads_begin != op.pads_end or not half:
        raise Unsupported(f"torch does not find places in windows of this form ('{node.name}')")
    shape = build.shape(name)
    both = build.call(
        MAX_POOLS[rank], build.value(name), op.kernel, op.strides, op.pads_begin, op.dilations,
        ceil_mode=op.ceil_mode, return_indices=True,
    )  # fmt: skip
    places = build.call(operator.getitem, both, 1)
    channels = prod(shape[:2])
    if channels == 1:
        return places
    begin = (np.arange(channels, dtype=np.int64) * prod(shape[2:])).reshape(*shape[:2], *(1,) * rank)
    return build.call(torch.add, places, build.buffer(begin))


def lp_pool(build: Builder, node: Node) -> fx.Node:
    """torch's own takes no pads: powers, their sum over each window, and the root."""
    op = node.op
    assert isinstance(op, LpPool)
    rank, (name,) = spatial_rank(build, node), node.inputs
    shape, x = build.shape(name), build.value(name)
    powers = build.call(torch.square, x) if op.p == 2 else build.call(torch.abs, x)
    if op.p > 2:
        powers = build.call(torch.pow, powers, op.p)
    powers = padded(build, powers, *exact_pads(op.windows, shape[2:]), 0.0)
    ones = build.buffer(np.ones((shape[1], 1, *op.kernel), np.float32))
    total = build.call(CONV_CALLS[rank], powers, ones, stride=op.strides, dilation=op.dilations, groups=shape[1])
    if op.p == 1:
        return total
    return build.call(torch.sqrt, total) if op.p == 2 else build.call(torch.pow, total, 1.0 / op.p)


WINDOWS: dict[type[Op], Lower] = {PoolPlaces: pool_places, LpPool: lp_pool}
