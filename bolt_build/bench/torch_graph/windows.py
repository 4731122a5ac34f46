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
from bolt_build.graph.ops.images.patch_sum import PatchSum
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


def patch_sum(build: Builder, node: Node) -> fx.Node:
    """torch's fold of what the patches reach, which is then cut off or filled up to the image; lines are images of one
    row."""
    op = node.op
    assert isinstance(op, PatchSum)
    if len(op.image) > 2:
        raise Unsupported(f"torch puts patches of images back alone ('{node.name}')")
    one = (1,) * (2 - len(op.image))
    block, strides, dilations = (*one, *op.block), (*one, *op.strides), (*one, *op.dilations)
    counts, image, pads = (*one, *op.counts), (*one, *op.image), (*(0,) * len(one), *op.pads)
    axes = zip(counts, strides, dilations, block, strict=True)
    reach = tuple((count - 1) * stride + gap * (cells - 1) + 1 for count, stride, gap, cells in axes)
    x = build.value(node.inputs[0])
    folded = build.call(torch.nn.functional.fold, x, reach, block, dilation=dilations, stride=strides)
    ends = [(-pad, extent + pad - to) for pad, extent, to in zip(pads, image, reach, strict=True)]
    whole = build.call(torch.nn.functional.pad, folded, [*ends[1], *ends[0]])
    return whole if not one else build.call(torch.squeeze, whole, 2)


WINDOWS: dict[type[Op], Lower] = {PoolPlaces: pool_places, LpPool: lp_pool, PatchSum: patch_sum}
