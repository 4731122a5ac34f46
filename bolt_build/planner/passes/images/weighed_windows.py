"""Computes windows times filters that are data in one step: depthwise convolutions whose filters a model mixes or makes
for every image (CondConv, trackers' templates), and filters that it predicts for each pixel (involution, LSNet, kernel
prediction), where exporters gather windows, multiply and sum over taps.

Windows that are stored are as many times the image as they have taps, and each would be written, read, multiplied and
read again. A batch of images with filters of their own is one image with groups in PyTorch: it is a batch here again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.weighed_windows import WeighedWindows
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Pad, Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor, joined

_MOST_TAPS = 256
"""Of a window: a thread goes through all of them, and larger ones are work for products."""


_TURNED = 1 << 20
"""Elements of a result from which on it pays to put the elements of a tap side by side first, which is a small step."""


class _Unknown(Exception):
    """Why a sum is none over the taps of windows."""


@dataclass(frozen=True)
class _Windows:
    """An operator, the image that it reads, its filters, and their shape as it wants them."""

    op: WeighedWindows
    image: str
    filters: str
    shape: tuple[int, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(WEIGH_WINDOWS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        try:
            if isinstance(node.op, Conv) and _is_of_data(editor, node, node.op):
                _put(editor, node, _of_convolution(editor, node, node.op))
                journal.did(node.name, "made one step of windows and filters", "its filters are data")
            elif isinstance(node.op, Reduce) and (found := _of_sum(editor, node, node.op)) is not None:
                _put(editor, node, found)
                journal.did(node.name, "made one step of windows and filters", "each window is weighed and summed up")
        except _Unknown as unknown:
            journal.declined(node.name, str(unknown))
    return journal.result(editor.finish())


def _is_of_data(editor: GraphEditor, node: Node, op: Conv) -> bool:
    """Whether it is a depthwise convolution over images with filters that are data, without a bias."""
    if editor.is_constant(node.inputs[1]) or len(node.inputs) != 2:
        return False
    x, w = editor.type(node.inputs[0]).shape, editor.type(node.inputs[1]).shape
    return len(x) == 4 and w[1] == 1 and op.groups == w[0] == x[1] and 1 < prod(w[2:]) <= _MOST_TAPS


def _of_convolution(editor: GraphEditor, node: Node, op: Conv) -> _Windows:
    image, (images, channels, *_) = node.inputs[0], editor.type(node.inputs[0]).shape
    w, made = editor.type(node.inputs[1]).shape, editor.producer(node.inputs[0])
    if images == 1 and made is not None and not made.epilogue and isinstance(made.op, Reshape):
        before = editor.type(made.inputs[0]).shape
        if len(before) == 4 and before[0] * before[1] == channels and before[2:] == editor.type(image).shape[2:]:
            image, images, channels = made.inputs[0], before[0], before[1]
    (rows, columns), (down, across) = w[2:], op.strides
    top, left = op.pads_begin
    bottom, right = op.pads_end
    windows = WeighedWindows(
        (rows, columns), (down, across), (top, left), (bottom, right), (op.dilations[0], op.dilations[1])
    )
    many = images if images * channels == w[0] else 1
    if channels > 1 and editor.type(node.outputs[0]).elements >= _TURNED:
        windows = replace(windows, turned=True)
    return _Windows(windows, image, node.inputs[1], (many, channels * windows.taps, 1, 1))


def _of_sum(editor: GraphEditor, node: Node, op: Reduce) -> _Windows | None:
    """The windows that a sum of products is of, None where it is none of gathered windows. Raises _Unknown."""
    product = editor.producer(node.inputs[0])
    if op.mode != "sum" or len(op.axes) != 1 or product is None or product.op != Binary("mul") or product.epilogue:
        return None
    for gathered, filters in (product.inputs, product.inputs[::-1]):
        split = editor.producer(gathered)
        windows = None if split is None or not isinstance(split.op, Reshape) else editor.producer(split.inputs[0])
        if windows is not None and not windows.epilogue and windows.op == Gather(2):
            if editor.type(node.inputs[0]) != editor.type(gathered):
                raise _Unknown(f"'{filters}' has several filters for each window")
            for value in (node.inputs[0], gathered, windows.outputs[0]):
                if (reason := editor.not_private(value)) is not None:
                    raise _Unknown(reason)
            return _gathered(editor, windows, editor.type(gathered).shape, filters, op.axes[0])
    return None


def _gathered(editor: GraphEditor, windows: Node, split: tuple[int, ...], filters: str, axis: int) -> _Windows:
    """`split`: how channels, taps and pixels of the gathered windows lie where they are multiplied. Raises _Unknown."""
    flat, table = editor.producer(windows.inputs[0]), editor.constant(windows.inputs[1])
    made = editor.type(windows.outputs[0]).shape
    if flat is None or not isinstance(flat.op, Reshape) or table is None or table.ndim != 4 or len(made) != 6:
        raise _Unknown(f"'{windows.name}' gathers no windows of an image that lies in a line")
    image, (images, channels, *_) = flat.inputs[0], made
    shape = editor.type(image).shape
    if len(shape) != 4 or shape[:2] != made[:2]:
        raise _Unknown(f"'{image}' is no batch of images")
    op = _as_windows(table, shape[3])
    if op is None or op.taps > _MOST_TAPS:
        raise _Unknown(f"'{windows.name}' gathers no windows that lie evenly")
    taps, pixels = op.taps, made[4:]
    if split[0] != images or prod(split[1:axis]) != channels or split[axis] != taps or split[axis + 1 :] != pixels:
        raise _Unknown(f"'{windows.outputs[0]}' is not summed up over the taps of its windows")
    given = editor.type(filters).shape
    given = (1,) * (len(split) - len(given)) + given
    own = [place for place in range(1, axis) if given[place] > 1]
    whole = not own or own == list(range(own[0], own[-1] + 1))
    if len(given) != len(split) or not whole or given[axis] != taps:
        raise _Unknown(f"'{filters}' has no filter for each run of channels")
    sets, shared = prod(given[1:axis]), prod(split[own[-1] + 1 : axis]) if own else 1
    padded = editor.producer(image)
    if padded is not None and isinstance(padded.op, Pad) and _is_around(padded.op) and len(padded.inputs) == 1:
        (_, _, top, left), (_, _, bottom, right) = padded.op.begin, padded.op.end
        op = replace(op, pads_begin=(top, left), pads_end=(bottom, right))
        image = padded.inputs[0]
    return _Windows(replace(op, shared=shared), image, filters, (given[0], sets * taps, *given[axis + 1 :]))


def _is_around(op: Pad) -> bool:
    """Whether it puts zeros around images."""
    zeros = op.mode == "constant" and op.value == 0
    return zeros and not any((*op.begin[:2], *op.end[:2])) and min(*op.begin, *op.end) >= 0


def _as_windows(table: Array, width: int) -> WeighedWindows | None:
    """Windows whose elements the table names in rows of `width`: [rows, columns of a window, rows, columns of the
    result]; None where they do not lie evenly."""

    def step(axis: int, of: int) -> int:
        if table.shape[axis] == 1:
            return 1
        second = tuple(int(place == axis) for place in range(4))
        return int(table[second]) // of

    dilations, strides = (step(0, width), step(1, 1)), (step(2, width), step(3, 1))
    if min(*dilations, *strides) < 1:
        return None
    rows, columns, height, across = map(np.arange, table.shape)
    down = height[:, None] * strides[0] * width + across * strides[1]
    wanted = (rows[:, None] * dilations[0] * width + columns * dilations[1])[:, :, None, None] + down
    if not np.array_equal(wanted, table):
        return None
    return WeighedWindows((table.shape[0], table.shape[1]), strides, dilations=dilations)


def _put(editor: GraphEditor, node: Node, found: _Windows) -> None:
    """The step in the node's place, or in that of the reshape that alone reads it and makes a batch of images. Raises
    _Unknown where it does not leave what the node does."""
    made, covers, out = list[Node](), node.covers, editor.type(node.outputs[0])

    def add(what: str, op: Op, *inputs: str) -> str:
        try:
            (type_,) = op.infer([editor.type(name) for name in inputs])
        except ValueError as error:
            raise _Unknown(str(error)) from error
        value = editor.new_value(f"{node.outputs[0]}.{what}", type_)
        made.append(Node(editor.free_node_name(f"{node.name}.{what}"), op, inputs, (value,)))
        return value

    filters = found.filters
    while (above := editor.producer(filters)) is not None and isinstance(above.op, Reshape) and not above.epilogue:
        filters = above.inputs[0]
    if found.op.turned:
        images, elements = found.shape[:2]
        filters = add("rows", Reshape((images, elements // found.op.taps, found.op.taps)), filters)
        filters = add("turned", Transpose((0, 2, 1)), filters)
    if editor.type(filters).shape != found.shape:
        filters = add("filters", Reshape(found.shape), filters)
    image = add("windows", found.op, found.image, filters)
    shape = editor.type(image).shape
    if prod(shape) != out.elements:
        raise _Unknown(f"windows leave {list(shape)}, '{node.outputs[0]}' is {list(out.shape)}")
    if shape[0] != out.shape[0] and prod(shape[:2]) != prod(out.shape[:2]):
        raise _Unknown(f"windows leave {list(shape)}, '{node.outputs[0]}' is {list(out.shape)}")
    last = made.pop()
    readers = editor.readers(node.outputs[0])
    behind = readers[0] if len(readers) == 1 and editor.not_private(node.outputs[0]) is None else None
    if behind is not None and behind.op == Reshape(shape) and not behind.epilogue:
        editor.replace(behind, *made, replace(last, name=behind.name, outputs=behind.outputs))
        ends = behind.outputs[0]
        covers = joined(covers, behind.covers)
    elif shape == out.shape:
        editor.replace(node, *made, replace(last, name=node.name, outputs=node.outputs))
        ends = node.outputs[0]
    else:
        editor.replace(node, *made, last, Node(node.name, Reshape(out.shape), (image,), node.outputs))
        ends = node.outputs[0]
    removed = editor.prune([*node.inputs, node.outputs[0]])
    end = editor.producer(ends)
    assert end is not None
    others = (each.covers for each in removed if each.name != node.name)
    editor.replace(end, replace(end, covers=joined(*others, covers)))


WEIGH_WINDOWS = Pass("weigh-windows", _run, pays_on=on_tensor_cores)
