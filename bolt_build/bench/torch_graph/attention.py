"""Attention that the model has as one operator: torch's own. Three operators of a model stay three."""

from __future__ import annotations

import operator

import numpy as np
import torch
from torch import fx
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.attention.attention import Attention, images_of


def attention(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, Attention)
    if op.counted:
        raise Unsupported(f"attention over keys that are counted has no counterpart in torch ('{node.name}')")
    if op.sunk or op.relative:
        what = "sinks" if op.sunk else "a mask by distance"
        raise Unsupported(f"attention with {what} has no counterpart in torch ('{node.name}')")
    if op.cap:
        raise Unsupported(f"attention with a cap of scores has no counterpart in torch ('{node.name}')")
    extents = op.extents([build.graph.type(name) for name in node.inputs])
    rows = _rows(build, node, op, extents.depth)
    heads = (op.heads, op.kv_heads, op.kv_heads)
    q, k, v = (_by_head(build, x, count) for x, count in zip(rows, heads, strict=True))
    mask = _mask(build, node, op, extents.batch)
    causal = op.causal
    if op.window or (causal and mask is not None):
        hidden = build.buffer(np.where(op.seen(extents.queries, extents.keys), 0.0, -np.inf).astype(np.float32))
        mask, causal = hidden if mask is None else build.call(torch.add, mask, hidden), False
    made = build.call(
        F.scaled_dot_product_attention, q, k, v, attn_mask=mask, is_causal=causal, scale=op.scale,
        enable_gqa=op.heads != op.kv_heads,
    )  # fmt: skip
    return build.call(torch.flatten, build.call(torch.transpose, made, 1, 2), 2)


def _mask(build: Builder, node: Node, op: Attention, batch: int) -> fx.Node | None:
    """The masks' sum, each once more for each run of images that it begins anew for."""
    found = None
    for name in op.masks(node.inputs):
        mask, images = build.value(name), images_of(build.graph.type(name).shape, batch)
        if images not in (1, batch):
            mask = build.call(torch.Tensor.repeat, mask, (batch // images, 1, 1, 1))
        found = mask if found is None else build.call(torch.add, found, mask)
    return found


def _rows(build: Builder, node: Node, op: Attention, depth: int) -> list[fx.Node]:
    """Queries, keys and values, heads side by side."""
    if not op.packed:
        return [build.value(name) for name in node.inputs[:3]]
    widths = [count * depth for count in (op.heads, op.kv_heads, op.kv_heads)]
    parts = build.call(torch.split, build.value(node.inputs[0]), widths, 2)
    return [build.call(operator.getitem, parts, index) for index in range(3)]


def _by_head(build: Builder, rows: fx.Node, heads: int) -> fx.Node:
    """[N, S, heads D] as [N, heads, S, D]: a view."""
    return build.call(torch.transpose, build.call(torch.unflatten, rows, 2, (heads, -1)), 1, 2)


ATTENTION: dict[type[Op], Lower] = {Attention: attention}
