"""Resized tensors and samples at places that a grid names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import fx
from torch.nn import functional as F

from bolt_build.bench.torch_graph.builder import Builder, Lower, Unsupported
from bolt_build.graph.ir import Array, Node, Op
from bolt_build.graph.ops.images.grid_sample import GridSample
from bolt_build.graph.ops.images.resize import Interpolate
from bolt_build.graph.ops.moves.gather import Gather

_CLOSE = 1e-3
"""Weights of torch's modes are computed in fp32 from rounded places."""
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
_LARGEST_TABLE = 1 << 24
"""Elements of a table that is compared with those of torch's modes."""
_SAMPLED = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}


@dataclass(frozen=True)
class _Mode:
    """One of F.interpolate's."""

    name: str
    align_corners: bool | None = None
    antialias: bool = False

    def matrix(self, extent: int, results: int) -> Array:
        """What it multiplies a line with, [results, extent]."""
        # A plane one row high is a line; antialiasing and cubic weights are for planes alone.
        lines = torch.eye(extent)[None, :, None, :]
        plane = "bilinear" if self.name in _LINEAR.values() else self.name
        made = F.interpolate(
            lines, (1, results), mode=plane, align_corners=self.align_corners, antialias=self.antialias
        )  # fmt: skip
        return np.asarray(made[0, :, 0].T.numpy())


def _modes(axes: int) -> Iterator[_Mode]:
    """Those that torch has for so many spatial axes."""
    yield from (_Mode("nearest"), _Mode("nearest-exact"))
    yield from (_Mode(_LINEAR[axes], corners) for corners in (False, True))
    if axes == 2:
        yield from (_Mode("bicubic", corners) for corners in (False, True))
        yield from (_Mode(name, False, antialias=True) for name in ("bilinear", "bicubic"))


def resizes(build: Builder, node: Node) -> bool:
    """Whether the node may be a resize along one spatial axis; to the nearest it is a gather of places in order."""
    shape = build.shape(node.inputs[0])
    if not isinstance(node.op, Interpolate | Gather) or node.op.axis < 2 or len(shape) - 2 not in _LINEAR:
        return False
    if isinstance(node.op, Interpolate):
        return True
    held, extent = build.graph.constant(node.inputs[1]), shape[node.op.axis]
    if held is None or held.ndim != 1 or not build.is_float(node.inputs[0]) or not extent:
        return False
    return bool(held.size * extent <= _LARGEST_TABLE and (held >= 0).all() and (np.diff(held) >= 0).all())


def interpolate(build: Builder, node: Node) -> fx.Node:
    """A resize of several axes stands in the graph as one node an axis: it is one call where the axes' tables are those
    of one of torch's modes."""
    steps = [node]
    while (before := build.graph.producer(steps[0].inputs[0])) is not None and _goes_on(build, before):
        steps.insert(0, before)
    if _goes_on(build, node):
        return build.value(node.inputs[0])  # nobody reads it: the last of the nodes computes all
    first = steps[0].inputs[0]
    shape, x = build.shape(first), build.value(first)
    tables = {step.op.axis: _table(build, step) for step in steps if isinstance(step.op, Interpolate | Gather)}
    axes = len(shape) - 2
    if axes in _LINEAR and min(tables) >= 2:
        for mode in _modes(axes):
            pairs = ((tables[axis], mode.matrix(shape[axis], len(tables[axis]))) for axis in tables)
            if all(np.abs(table - own).max() < _CLOSE for table, own in pairs):
                size = tuple(len(tables[axis]) if axis in tables else shape[axis] for axis in range(2, len(shape)))
                return build.call(
                    F.interpolate, x, size, mode=mode.name, align_corners=mode.align_corners, antialias=mode.antialias
                )
    for axis, table in tables.items():
        x = _along(build, x, axis, table)
    return x


def _goes_on(build: Builder, node: Node) -> bool:
    """Whether the node's result is resized along another axis, and nothing else reads it."""
    (result,), readers = node.outputs, build.graph.consumers(node.outputs[0])
    return (
        len(readers) == 1
        and result not in build.graph.outputs
        and isinstance(node.op, Interpolate | Gather)
        and isinstance(readers[0].op, Interpolate | Gather)
        and resizes(build, node)
        and resizes(build, readers[0])
        and readers[0].inputs[0] == result
        and readers[0].op.axis > node.op.axis
    )


def _table(build: Builder, node: Node) -> Array:
    """Weights of all elements of a line for each result, [results, extent]."""
    held = build.constants(node.inputs[1:])
    if held is None:
        raise Unsupported(f"a resize whose weights are computed has no counterpart in torch ('{node.name}')")
    assert isinstance(node.op, Interpolate | Gather)
    extent = build.shape(node.inputs[0])[node.op.axis]
    places, weights = held if isinstance(node.op, Interpolate) else (held[0][:, None], np.ones((held[0].size, 1)))
    table = np.zeros((len(places), extent), np.float32)
    np.add.at(table, (np.arange(len(places))[:, None], np.clip(places, 0, extent - 1)), weights.astype(np.float32))
    return table


def _along(build: Builder, x: fx.Node, axis: int, table: Array) -> fx.Node:
    if (np.count_nonzero(table, 1) == 1).all() and (table.max(1) == 1).all():
        return build.call(torch.index_select, x, axis, build.buffer(table.argmax(1).astype(np.int64)))
    last = build.call(torch.movedim, x, axis, -1)
    return build.call(torch.movedim, build.call(F.linear, last, build.buffer(table)), -1, axis)


def grid_sample(build: Builder, node: Node) -> fx.Node:
    """torch samples planes and volumes: a line is a plane one row high."""
    op = node.op
    assert isinstance(op, GridSample)
    x, grid = map(build.value, node.inputs)
    axes = build.axes(node.inputs[0]) - 2
    if op.mode == "cubic" and axes == 3:
        raise Unsupported(f"torch does not sample volumes with cubic weights ('{node.name}')")
    if axes == 1:
        x = build.call(torch.unsqueeze, x, 2)
        grid = build.call(F.pad, build.call(torch.unsqueeze, grid, 1), (0, 1))
    made = build.call(F.grid_sample, x, grid, _SAMPLED[op.mode], op.padding, op.align_corners)
    return build.call(torch.squeeze, made, 2) if axes == 1 else made


SAMPLING: dict[type[Op], Lower] = {Interpolate: interpolate, GridSample: grid_sample}
