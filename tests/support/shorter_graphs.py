"""A drawn graph for a shorter extent of one dimension: the same nodes, over fewer positions of axes that have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import drawn_graphs
import numpy as np
import pytest

from bolt_build.graph.arrays import type_of
from bolt_build.graph.ir import Array, Constant, Graph, Op, ShapeError, Value, graph_of
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Reshape, Slice

LONG, SHORT = 11, 7
"""Extents of the dimension: no other axis has a multiple of either."""


@contextmanager
def long_extents() -> Iterator[None]:
    """Inputs that are drawn have the dimension as often as not."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drawn_graphs, "EXTENTS", (2, 3, 4, 1, 6, 8, *[LONG] * 3))
        patched.setattr(drawn_graphs, "MOST_ELEMENTS", 8000)
        yield


def shorter(graph: Graph) -> Graph | None:
    """The graph for the short extent; None where it depends on the long one otherwise than by its shapes."""
    values: dict[str, Value] = {}
    for value in graph.values:
        if value.constant is not None:
            array = cut(value.constant.array)
            if array is None:
                return None
            same = array.shape == value.type.shape
            values[value.name] = replace(
                value, type=type_of(array), constant=value.constant if same else Constant(array)
            )
        elif value.name in graph.inputs:
            values[value.name] = replace(value, type=replace(value.type, shape=_short(value.type.shape)))
    nodes = []
    for node in graph.nodes:
        op = _shorter(node.op)
        try:
            types = op.infer([values[name].type for name in node.inputs])
        except ShapeError:
            return None
        for name, type_ in zip(node.outputs, types, strict=True):
            values[name] = replace(graph.value(name), type=type_)
        nodes.append(replace(node, op=op))
    every = [values[value.name] for value in graph.values]
    return graph_of(graph.name, graph.batch, graph.inputs, graph.outputs, every, nodes)


def cut(array: Array) -> Array | None:
    """The first positions of each axis that is the dimension; None where one has several times as many, or where the
    numbers may be positions themselves."""
    if any(extent % LONG == 0 and extent != LONG for extent in array.shape):
        return None
    if array.dtype.kind == "i" and array.size and array.max() >= SHORT:
        return None
    return array[tuple(slice(SHORT if extent == LONG else None) for extent in array.shape)]


def padded(array: Array, shape: tuple[int, ...]) -> Array:
    """Zeros behind what is there, up to this shape."""
    return np.pad(array, [(0, more - less) for less, more in zip(array.shape, shape, strict=True)])


def _short(extents: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent // LONG * SHORT if extent % LONG == 0 else extent for extent in extents)


def _shorter(op: Op) -> Op:
    match op:
        case Reshape(shape) | Expand(shape):
            return replace(op, shape=_short(shape))
        case Slice():
            return replace(op, count=_short(op.count))
    return op
