"""Computes convolutions whose filters are data as products, behind a step that puts the elements of windows in columns.

Kernels of convolutions pack filters when an engine loads. Filters that a model mixes or makes for every image (dynamic
and conditional convolutions, hypernetworks, the template of a tracker) are not known then, and plain instructions would
compute them element by element. One filter of few elements weighs columns, and these are added up. Few filters of many
channels multiply pixels tap by tap, and what the taps of a window leave is added up: windows would be as many times the
image as they have taps. A batch of images with filters of their own is usually one image with groups.
"""

from __future__ import annotations

from math import prod
from typing import Protocol

import numpy as np

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Pad, Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor

_FILTERS, _DEPTH, _DEEP = 8, 16, 256
"""Fewest filters of a group that are worth a product where columns are stored, which plain instructions do without;
fewest elements of a window; and as many as are worth a product whatever there are of filters."""
_CHANNELS = 16
"""Fewest channels of a group that are worth a product of their own for each tap."""
_MOST = 1 << 22
"""Elements of the table that names the elements of all windows of a channel."""


class _Add(Protocol):
    """Adds a node that is called by what it is, and gives the name of what it leaves."""

    def __call__(self, what: str, op: Op, *inputs: str) -> str: ...


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MULTIPLY_WINDOWS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv) or node.epilogue or editor.is_constant(node.inputs[1]):
            continue
        if (obstacle := _obstacle(editor, node, node.op)) is not None:
            journal.declined(node.name, f"its filters are data, but {obstacle}")
            continue
        _multiply(editor, node, node.op)
        journal.did(node.name, "made a product of windows and filters", "its filters are data")
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, op: Conv) -> str | None:
    """Why it stays a convolution; None where products compute it."""
    x, w = (editor.type(name) for name in node.inputs[:2])
    out = editor.type(node.outputs[0])
    if x.dtype not in PRECISIONS.values() or not out.elements:
        return f"products are not for {x.dtype.value}" if out.elements else "it has no element"
    filters, depth = w.shape[0] // op.groups, prod(w.shape[1:])
    if 1 < filters < _FILTERS and depth < _DEEP and _stores_columns(op, w.shape):
        return f"a group has {filters} of them, columns are stored for one, or {_FILTERS} and more"
    if depth < _DEPTH and (filters > 1 or not _stores_columns(op, w.shape)):
        return f"a window has {depth} elements, products are for {_DEPTH} and more"
    taps = prod(w.shape[2:]) * prod(out.shape[2:])
    return None if taps <= _MOST else f"windows have {taps} elements a channel, tables name {_MOST}"


def _stores_columns(op: Conv, window: tuple[int, ...]) -> bool:
    """Whether windows are more than the image as it lies."""
    return prod(window[2:]) > 1 or any(each > 1 for each in op.strides) or any((*op.pads_begin, *op.pads_end))


def _adds_taps(op: Conv, x: tuple[int, ...], window: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether products of pixels, tap by tap, are at most half of what windows would be."""
    filters, channels = window[0] // op.groups, window[1]
    pixels = prod(
        extent + sum(pads) for extent, pads in zip(x[2:], zip(op.pads_begin, op.pads_end, strict=True), strict=True)
    )
    return channels >= _CHANNELS and prod(window[2:]) > 1 and 2 * filters * pixels <= channels * prod(out[2:])


def _multiply(editor: GraphEditor, node: Node, op: Conv) -> None:
    made = list[Node]()

    def add(what: str, op: Op, *inputs: str) -> str:
        (type_,) = op.infer([editor.type(name) for name in inputs])
        value = editor.new_value(f"{node.outputs[0]}.{what}", type_)
        made.append(Node(editor.free_node_name(f"{node.name}.{what}"), op, inputs, (value,)))
        return value

    (_, _, *spatial), w = editor.type(node.inputs[0]).shape, editor.type(node.inputs[1]).shape
    out = editor.type(node.outputs[0]).shape
    x = node.inputs[0]
    if any((*op.pads_begin, *op.pads_end)):
        x = add("padded", Pad((0, 0, *op.pads_begin), (0, 0, *op.pads_end)), x)
        spatial = list(editor.type(x).shape[2:])
    if _adds_taps(op, editor.type(node.inputs[0]).shape, w, out):
        product = _tap_by_tap(editor, node, op, add, x, spatial)
    else:
        product = _in_columns(editor, node, op, add, x, spatial)
    if len(node.inputs) == 2:
        editor.replace(node, *made, Node(node.name, Reshape(out), (product,), node.outputs, covers=node.covers))
        return
    image = add("image", Reshape(out), product)
    bias = add("bias", Reshape((w[0], *(1,) * len(spatial))), node.inputs[2])
    editor.replace(node, *made, Node(node.name, Binary("add"), (image, bias), node.outputs, covers=node.covers))


def _in_columns(editor: GraphEditor, node: Node, op: Conv, add: _Add, x: str, spatial: list[int]) -> str:
    """Filters times windows that are stored as columns: [images, groups, filters, columns]."""
    (images, channels, *_), w = editor.type(x).shape, editor.type(node.inputs[1]).shape
    out = editor.type(node.outputs[0]).shape
    columns, depth = prod(out[2:]), prod(w[1:])
    if _stores_columns(op, w):
        x = add("flat", Reshape((images, channels, prod(spatial))), x)
        table = editor.new_constant(f"{node.name}.places", _places(op, w[2:], spatial, out[2:]), DType.I64)
        x = add("columns", Gather(2), x, table)
    x = add("windows", Reshape((images, op.groups, depth, columns)), x)
    if w[0] == op.groups and depth < _DEEP:  # rows of one filter are no work for a product
        filters = add("filters", Reshape((1, op.groups, depth, 1)), node.inputs[1])
        return add("sum", Reduce("sum", (2,), True), add("weighed", Binary("mul"), x, filters))
    filters = add("filters", Reshape((1, op.groups, w[0] // op.groups, depth)), node.inputs[1])
    return add("product", MatMul(), filters, x)


def _tap_by_tap(editor: GraphEditor, node: Node, op: Conv, add: _Add, x: str, spatial: list[int]) -> str:
    """Filters of each tap times pixels, and for each place of the result the sum of its taps: [images, filters,
    columns]."""
    images, w = editor.type(x).shape[0], editor.type(node.inputs[1]).shape
    filters, taps, pixels = w[0] // op.groups, prod(w[2:]), prod(spatial)
    x = add("flat", Reshape((images, op.groups, w[1], pixels)), x)
    own = add("filters", Reshape((op.groups, filters, w[1], taps)), node.inputs[1])
    own = add("turned", Transpose((0, 1, 3, 2)), own)
    own = add("taps", Reshape((1, op.groups, filters * taps, w[1])), own)
    product = add("product", MatMul(), own, x)
    line = add("line", Reshape((images, w[0], taps * pixels)), product)
    places = _places(op, w[2:], spatial, editor.type(node.outputs[0]).shape[2:]) + pixels * np.arange(taps)[:, None]
    table = editor.new_constant(f"{node.name}.places", places, DType.I64)
    return add("sum", Reduce("sum", (2,), False), add("columns", Gather(2), line, table))


def _places(op: Conv, kernel: tuple[int, ...], spatial: list[int], out: tuple[int, ...]) -> Array:
    """Where each tap of each window lies in a padded image whose elements lie in a line: [taps, windows]."""
    found = np.zeros((1, 1), np.int64)
    axes = zip(kernel, op.strides, op.dilations, spatial, out, strict=True)
    for taps, stride, dilation, extent, count in axes:
        own = dilation * np.arange(taps)[:, None] + stride * np.arange(count)
        both = found[:, None, :, None] * extent + own[None, :, None, :]
        found = both.reshape(found.shape[0] * taps, found.shape[1] * count)
    return found


MULTIPLY_WINDOWS = Pass("multiply-windows", _run, pays_on=on_tensor_cores)
