"""Computes convolutions over three axes, and those with very wide windows, as ones that tensor cores have kernels for.

A window that reaches over one depth alone is one over images, of which there are more. One over depths alone goes over
columns that are whole images. Of three axes stays a window with a filter for each channel: kernels go through its
planes. Any other window's depths become channels, in a step that moves elements (`Stack`). So do some taps of a window
that is wider than kernels count positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.moves.stack import FoldDepth, Stack, UnfoldDepth
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor

MOST_TAPS = 32
"""Positions of a window along one axis that kernels for products count."""
THIN = 8
"""So few channels of a row of a window are gathered as one run, however wide it is."""
MOST_PLANES, MOST_GAP = 9, 4
"""Taps along an axis, and their dilation, with which a window of one channel a filter goes over volumes as they are."""
_WHOLE = 8
"""Half-precision elements of a load of 16 bytes."""
SUFFIX = ".flat"
"""Behind the name of a weight over fewer axes."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FLATTEN_VOLUMES.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv) or not editor.type(node.inputs[0]).elements:
            continue
        rank = editor.type(node.inputs[0]).rank
        wide = _wide_axis(editor, node, node.op)
        if rank != 5 and wide is None:
            continue
        obstacle = _obstacle(editor, node)
        if obstacle is None and rank == 5 and _goes_through_planes(editor, node, node.op):
            obstacle = "each channel has a filter of its own, and kernels go through planes"
        if obstacle is not None:
            journal.declined(node.name, obstacle)
        elif rank == 5:
            journal.did(node.name, "flattened", _flatten(editor, node, node.op))
        elif wide is not None:
            journal.did(node.name, "narrowed", _narrow(editor, node, node.op, wide))
    return journal.result(editor.finish())


def _wide_axis(editor: GraphEditor, node: Node, op: Conv) -> int | None:
    """The spatial axis along which the window of a convolution without groups has too many taps, None where none has,
    or a row of the window is one run of channels anyway."""
    channels, *kernel = editor.type(node.op_inputs[1]).shape[1:]
    thin = channels <= THIN and op.dilations[-1] == 1
    wide = [axis for axis, taps in enumerate(kernel[: -1 if thin else None]) if taps > MOST_TAPS]
    return wide[0] if wide and len(kernel) < 3 and op.groups == 1 else None


def _goes_through_planes(editor: GraphEditor, node: Node, op: Conv) -> bool:
    """Whether kernels compute a convolution over three axes as it is: one filter a channel, of several planes, and not
    over depths alone."""
    filters, own, *kernel = editor.type(node.op_inputs[1]).shape
    if own != 1 or filters != op.groups or kernel[0] == 1 or _is_still(kernel, op):
        return False
    return max(kernel) <= MOST_PLANES and max(op.dilations) <= MOST_GAP


def _is_still(kernel: Sequence[int], op: Conv) -> bool:
    """Whether a window over three axes goes over depths alone."""
    across = (*kernel[1:], *op.strides[1:])
    return all(one == 1 for one in across) and not any((*op.pads_begin[1:], *op.pads_end[1:]))


def _obstacle(editor: GraphEditor, node: Node) -> str | None:
    """Why the convolution cannot be one over fewer axes."""
    if not all(map(editor.is_constant, node.op_inputs[1:])):
        return "its weights are computed"
    shape = editor.type(node.outputs[0]).shape
    for stage in node.epilogue:
        if stage.operand is None:
            continue
        name = node.inputs[stage.operand]
        own = editor.type(name).shape
        if own != shape and not _a_channel(own, shape):
            return f"'{name}' of shape {list(own)} follows neither channels nor all of {list(shape)}"
    return None


def _a_channel(own: Sequence[int], shape: Sequence[int]) -> bool:
    """True for an operand with nothing but channels."""
    lead = (1,) * (len(shape) - len(own)) + tuple(own)
    return all(extent == 1 for axis, extent in enumerate(lead) if axis != 1)


class _Made:
    """Nodes in front of a convolution and behind it, in order."""

    def __init__(self, editor: GraphEditor, node: Node) -> None:
        self._editor, self._node = editor, node
        self.nodes: list[Node] = []

    def add(self, what: str, op: Op, *inputs: str) -> str:
        (type_,) = op.infer([self._editor.type(name) for name in inputs])
        what = f"{self._node.name}.{what}{len(self.nodes) or ''}"
        value, name = self._editor.new_value(what, type_), self._editor.free_node_name(what)
        self.nodes.append(Node(name, op, inputs, (value,)))
        return value


def _flatten(editor: GraphEditor, node: Node, op: Conv) -> str:
    """A convolution over depth, rows and columns as one over two of them: what was done with the third."""
    made, shape = _Made(editor, node), editor.type(node.inputs[0]).shape
    out, kernel = editor.type(node.outputs[0]).shape, editor.type(node.op_inputs[1]).shape[2:]
    depth = kernel[0]
    if _is_still(kernel, op) and depth > 1:
        # Windows over depths alone: an image is a row.
        flat = Conv((op.strides[0], 1), (op.pads_begin[0], 0), (op.pads_end[0], 0), (op.dilations[0], 1), op.groups)

        def lined(name: str) -> str:
            extents = editor.type(name).shape
            return made.add("rows", Reshape((*extents[:3], extents[3] * extents[4])), name)

        _rewrite(editor, node, made, flat, lined, lined, _with_column, Reshape(out))
        return "windows over depths alone go over rows that are whole images"
    begin, end, whole = op.pads_begin[0], op.pads_end[0], depth == 1 and op.strides[0] == 1
    channels = shape[1] * depth
    if op.groups == 1 and depth > 1:
        channels = -(-channels // _WHOLE) * _WHOLE
    taps = Stack(2, depth, op.strides[0], op.dilations[0], begin, out[2], channels)
    flat = Conv(op.strides[1:], op.pads_begin[1:], op.pads_end[1:], op.dilations[1:], op.groups)
    moves = not whole or begin > 0 or end > 0

    def folded(name: str) -> str:
        return made.add("images", FoldDepth(), name)

    def stacked(name: str) -> str:
        return folded(made.add("depths", taps, name) if moves else name)

    def merged(array: Array) -> Array:
        rows = array.reshape(array.shape[0], -1, *array.shape[3:])
        return np.pad(rows, ((0, 0), (0, channels - shape[1] * depth if op.groups == 1 else 0), (0, 0), (0, 0)))

    _rewrite(editor, node, made, flat, stacked, folded, merged, UnfoldDepth(out[2]))
    return f"its {depth} depths are channels of images" if moves else "each depth is an image"


def _narrow(editor: GraphEditor, node: Node, op: Conv, axis: int) -> str:
    """Runs of taps of the window become channels, so that fewer are left along the spatial `axis`. Of a window over
    the whole image each element is moved once."""
    made, channels = _Made(editor, node), editor.type(node.inputs[0]).shape[1]
    taps = editor.type(node.op_inputs[1]).shape[2 + axis]
    count = -(-taps // MOST_TAPS)
    left, gap, stride = -(-taps // count), op.dilations[axis], op.strides[axis]
    extent = (editor.type(node.outputs[0]).shape[2 + axis] - 1) * stride + (left - 1) * gap + 1
    stack = Stack(2 + axis, count, 1, left * gap, op.pads_begin[axis], extent, channels * count)

    def with_axis(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:axis], value, *values[axis + 1 :])

    flat = replace(op, pads_begin=with_axis(op.pads_begin, 0), pads_end=with_axis(op.pads_end, 0))

    def stacked(name: str) -> str:
        return made.add("taps", stack, name)

    def cut(array: Array) -> Array:
        widths = [(0, 0)] * array.ndim
        widths[2 + axis] = (0, left * count - taps)
        whole = np.pad(array, widths)
        split = whole.reshape(*whole.shape[: 2 + axis], count, left, *whole.shape[3 + axis :])
        turned = np.moveaxis(split, 2 + axis, 2)
        return turned.reshape(turned.shape[0], channels * count, *turned.shape[3:])

    _rewrite(editor, node, made, flat, stacked, lambda name: name, cut, None)
    return f"{count} of its {taps} taps are channels"


def _with_column(array: Array) -> Array:
    """A weight [K,C,depth,1,1] as [K,C,depth,1]."""
    return array.reshape(*array.shape[:3], 1)


def _rewrite(
    editor: GraphEditor, node: Node, made: _Made, op: Conv, given: Callable[[str], str],
    residual: Callable[[str], str], weights: Callable[[Array], Array], back: Op | None,
) -> None:  # fmt: skip
    """`op` in the place of the node's: over what `given` makes of its input and `residual` of what is added, with what
    `weights` makes of its weight; `back` gives the result its axes again, None that it has them."""
    shape = editor.type(node.outputs[0]).shape
    operands = {stage.operand for stage in node.epilogue}
    own = [index for index in range(len(node.inputs)) if index not in operands]
    inputs = []
    for index, name in enumerate(node.inputs):
        if index == own[1]:
            array, dtype = editor.constant(name), editor.type(name).dtype
            assert array is not None
            flat = np.ascontiguousarray(weights(array).astype(held_dtype(dtype)))
            name = editor.new_constant(f"{name}{SUFFIX}", flat, dtype)
        elif index == own[0]:
            name = given(name)
        elif index in operands and back is not None:
            name = residual(name) if editor.type(name).shape == shape else _shorter(editor, name)
        inputs.append(name)
    if back is None:
        editor.replace(node, *made.nodes, replace(node, op=op, inputs=tuple(inputs)))
        return
    (type_,) = op.infer([editor.type(inputs[index]) for index in own])
    value = editor.new_value(f"{node.name}.flat", type_)
    name = editor.free_node_name(f"{node.name}.flat")
    conv = replace(node, name=name, op=op, inputs=tuple(inputs), outputs=(value,))
    editor.replace(node, *made.nodes, conv, Node(node.name, back, (value,), node.outputs))


def _shorter(editor: GraphEditor, name: str) -> str:
    """A constant that follows channels alone, with one axis less where it has axes behind them."""
    array, dtype = editor.constant(name), editor.type(name).dtype
    if array is None or array.ndim < 2:
        return name
    return editor.new_constant(f"{name}{SUFFIX}", array.reshape(array.shape[:-1]), dtype)


FLATTEN_VOLUMES = Pass("flatten-volumes", _run, pays_on=on_tensor_cores)
