"""Gathers and scatters."""

from __future__ import annotations

import operator
from math import prod

import numpy as np
import torch
from torch import fx
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower
from bolt_build.bench.torch_graph.sampling import interpolate, resizes
from bolt_build.graph.ir import Array, Node, Op
from bolt_build.graph.ops.moves.gather import Gather, GatherElements, GatherND
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def gather(build: Builder, node: Node) -> fx.Node:
    """One constant index is a view, a table by rows is an embedding, and all else torch's indexing, but for resizes to
    the nearest."""
    op = node.op
    assert isinstance(op, Gather)
    if resizes(build, node):
        return interpolate(build, node)
    data, indices = node.inputs
    extent, held = build.shape(data)[op.axis], build.graph.constant(indices)
    if held is not None and held.ndim == 0:
        return build.call(torch.select, build.value(data), op.axis, int(held) % extent)
    if held is not None:
        at = build.buffer(_own(held, extent))
        if held.ndim == 1:
            return build.call(torch.index_select, build.value(data), op.axis, at)
    elif op.axis == 0 and build.axes(data) == 2 and build.is_float(data) and build.graph.constant(data) is not None:
        return build.call(F.embedding, build.value(indices), build.value(data))
    else:
        at = build.value(indices)
    return build.call(operator.getitem, build.value(data), (*(slice(None),) * op.axis, at))


def gather_elements(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, GatherElements)
    data, indices = node.inputs
    at = build.places(indices, build.shape(data)[op.axis])
    return build.call(torch.gather, build.value(data), op.axis, at)


def gather_nd(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, GatherND)
    data, indices = node.inputs
    return build.call(operator.getitem, build.value(data), tuple(_places(build, indices, op.batch_dims)))


def scatter_elements(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, ScatterElements)
    data, indices, updates = node.inputs
    at = build.places(indices, build.shape(data)[op.axis])
    if op.reduction == "none":
        return build.call(torch.scatter, build.value(data), op.axis, at, build.value(updates))
    return build.call(
        torch.scatter_reduce, build.value(data), op.axis, at, build.value(updates), _REDUCTIONS[op.reduction]
    )


def scatter_nd(build: Builder, node: Node) -> fx.Node:
    op = node.op
    assert isinstance(op, ScatterND)
    data, indices, updates = node.inputs
    x, y = build.value(data), build.value(updates)
    if op.reduction in ("none", "add"):
        return build.call(torch.index_put, x, _places(build, indices, op.batch_dims), y, op.reduction == "add")
    # What a row of indices names is a row of the data, seen with its first axes as one.
    shape, depth = build.shape(data), op.batch_dims + build.shape(indices)[-1]
    rows, row, count = prod(shape[:depth]), prod(shape[depth:]), prod(build.shape(indices)[:-1])
    at: fx.Node | None = None
    for axis, column in enumerate(_places(build, indices, op.batch_dims)):
        own = build.call(torch.remainder, column, shape[axis])
        at = own if at is None else build.call(torch.add, build.call(torch.mul, at, shape[axis]), own)
    assert at is not None, "a row of indices has one at least"
    every = build.call(torch.broadcast_to, build.call(torch.reshape, at, (count, 1)), (count, row))
    flat = build.call(torch.reshape, x, (rows, row))
    made = build.call(
        torch.scatter_reduce, flat, 0, every, build.call(torch.reshape, y, (count, row)), _REDUCTIONS[op.reduction]
    )
    return build.call(torch.reshape, made, shape)


def _places(build: Builder, indices: str, batch_dims: int) -> list[fx.Node]:
    """Where each row of indices has its slice along each axis that it names, behind its place in the batch."""
    shape, batches = build.shape(indices), list[fx.Node]()
    for axis, extent in enumerate(shape[:batch_dims]):
        along = [1] * (len(shape) - 1)
        along[axis] = extent
        batches.append(build.buffer(np.arange(extent, dtype=np.int64).reshape(along)))
    return [*batches, *_columns(build, indices)]


def _columns(build: Builder, indices: str) -> list[fx.Node]:
    """The last axis of indices, one tensor a column."""
    held, depth = build.graph.constant(indices), build.shape(indices)[-1]
    if held is not None:
        return [build.buffer(held[..., column].astype(np.int64)) for column in range(depth)]
    found = build.call(torch.unbind, build.value(indices), -1)
    return [build.call(operator.getitem, found, column) for column in range(depth)]


def _own(indices: Array, extent: int) -> Array:
    return np.where(indices < 0, indices + extent, indices).astype(np.int64)


INDEXING: dict[type[Op], Lower] = {
    Gather: gather, GatherElements: gather_elements, GatherND: gather_nd, ScatterElements: scatter_elements,
    ScatterND: scatter_nd,
}  # fmt: skip
