"""Computes long windows over images of one channel on whole channels: eight neighbouring columns become some, or eight
rows where the window is higher than wide. Networks for EEG begin so, those that read sound, and those of spectra.

A kernel of tensor cores reads eight channels at once, and of one channel seven of them are zeros. Where columns are
channels an image lies as it did, for its channels come last, and so does what the filters leave: each filter becomes
one for every column of a block, whose taps are shifted by it. So a window of 64 columns is one of 9 blocks, which
multiplies as many zeros as a block has columns. Where windows move by three columns, blocks have 24; where they move by
128, as those of a Fourier transform do, 128, and each has one result: no zero is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor

_LOAD = 8
"""Channels of a load of half precision: of as many columns blocks are a multiple."""
_PHASES = (2, 4)
"""Steps of windows whose phases are channels already, in other kernels."""
_LEAST = 16
"""Taps along an axis from which on a block has fewer zeros than a window has taps."""
_FEW = 1 << 18
"""Results of which a kernel takes little longer than what moves them."""
SUFFIX = ".lines"
"""Behind the name of a weight over blocks of columns."""

_Add = Callable[[str, Op, str], str]
"""Adds a node of so called an operator to a value, and returns its result."""


@dataclass(frozen=True)
class _Blocks:
    """Blocks of `size` places of the image along `axis` of all its axes, `given`, and of `each` of the results, `made`;
    those of a window, and those of zeros in front and behind. `shift` is where the first tap of result 0 lies in its
    block."""

    axis: int
    size: int
    each: int
    given: int
    made: int
    window: int
    before: int
    behind: int
    shift: int


def _blocks(op: Conv, x: tuple[int, ...], y: tuple[int, ...], kernel: tuple[int, ...], own: int) -> _Blocks:
    """Of blocks along the spatial axis `own`."""
    axis, step = own + 2, op.strides[own]
    size = lcm(step, _LOAD)
    each = size // step
    made, before = -(-y[axis] // each), -(-op.pads_begin[own] // size)
    shift = before * size - op.pads_begin[own]
    window = ((each - 1) * step + (kernel[own] - 1) * op.dilations[own] + shift) // size + 1
    read = made + window - 1 - before  # windows that move by several places may leave out the end of the image
    given = min(-(-x[axis] // size), read)
    return _Blocks(axis, size, each, given, made, window, before, read - given, shift)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_LINES.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, Conv) or op.groups != 1 or not editor.type(node.inputs[0]).elements:
            continue
        x, y = editor.type(node.inputs[0]).shape, editor.type(node.outputs[0]).shape
        _, channels, *windows = editor.type(node.op_inputs[1]).shape
        kernel = tuple(windows)
        if channels > 1 or len(kernel) > 2 or max(kernel) < _LEAST:
            continue
        own = max(range(len(kernel)), key=lambda axis: (kernel[axis], axis))
        obstacle = _obstacle(editor, node, op, own)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
            continue
        blocks = _blocks(op, x, y, kernel, own)
        if blocks.size - op.strides[own] > kernel[own]:
            journal.declined(node.name, f"its blocks of {blocks.size} places would be zeros for the most part")
            continue
        if blocks.given < 1:
            journal.declined(node.name, "its windows read zeros around the image alone")
            continue
        _fold(editor, node, op, blocks)
        reason = f"a window of {kernel[own]} places is one of {blocks.window} blocks of {blocks.size}"
        journal.did(node.name, "made channels of neighbours", reason)
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, op: Conv, own: int) -> str | None:
    """Why the convolution stays as it is."""
    if not all(map(editor.is_constant, node.op_inputs[1:])):
        return "its weights are computed"
    if op.strides[own] in _PHASES:
        return f"its window moves by {op.strides[own]}, and these phases are channels already"
    if any(stage.operand is not None for stage in node.epilogue):
        return "its epilogue reads another tensor"
    if editor.type(node.outputs[0]).elements < _FEW:
        return f"it leaves {editor.type(node.outputs[0]).elements} results, {_FEW} at least are worth it"
    return None


def _fold(editor: GraphEditor, node: Node, op: Conv, blocks: _Blocks) -> None:
    made = list[Node]()

    def add(what: str, op: Op, value: str) -> str:
        (type_,) = op.infer([editor.type(value)])
        label = f"{node.name}.{what}{len(made) or ''}"
        result, name = editor.new_value(label, type_), editor.free_node_name(label)
        made.append(Node(name, op, (value,), (result,)))
        return result

    value, at = node.inputs[0], blocks.axis
    shape = editor.type(value).shape
    zeros = (0,) * len(shape)
    missing = blocks.given * blocks.size - shape[at]
    if missing < 0:
        value = add("read", Slice(zeros, _put(shape, at, shape[at] + missing), (1,) * len(shape)), value)
    elif missing:
        value = add("padded", Pad(zeros, _put(zeros, at, missing)), value)
    value = _blocked(add, value, editor.type(value).shape, blocks)
    weights, *biases = node.op_inputs[1:]
    inputs = [value, _constant(editor, weights, _shifted(editor, weights, op, blocks))]
    for name in biases:
        bias = editor.constant(name)
        assert bias is not None
        inputs.append(_constant(editor, name, np.tile(bias, blocks.each)))
    own = at - 2
    flat = replace(
        op, strides=_put(op.strides, own, 1), dilations=_put(op.dilations, own, 1),
        pads_begin=_put(op.pads_begin, own, blocks.before), pads_end=_put(op.pads_end, own, blocks.behind),
    )  # fmt: skip
    (type_,) = flat.infer([editor.type(name) for name in inputs])
    wide = editor.new_value(f"{node.name}.wide", type_)
    name = editor.free_node_name(f"{node.name}.wide")
    made.append(replace(node, name=name, op=flat, inputs=tuple(inputs), outputs=(wide,)))
    value = _apart(add, wide, type_.shape, blocks)
    wanted = editor.type(node.outputs[0]).shape
    if editor.type(value).shape != wanted:
        value = add("kept", Slice(zeros, wanted, (1,) * len(wanted)), value)
    made[-1] = replace(made[-1], name=node.name, outputs=node.outputs)
    editor.replace(node, *made)


def _blocked(add: _Add, value: str, shape: tuple[int, ...], blocks: _Blocks) -> str:
    """[N,1,...] with blocks along an axis as channels."""
    batch, _, *rest = shape
    at, count, size = blocks.axis, blocks.given, blocks.size
    if at == len(shape) - 1:  # as it lies, its channels last
        lines = add("blocks", Reshape((batch, *rest[:-1], count, size)), value)
        return add("turned", Transpose((0, len(shape) - 1, *range(1, len(shape) - 1))), lines)
    split = (*shape[:at], count, size, *shape[at + 1 :])
    perm = (0, 1, at + 1, *(axis for axis in range(2, len(split)) if axis != at + 1))
    whole = _put((batch, size, *rest), at, count)
    return add("blocks", Rearrange(split, perm, whole, 0, whole), value)


def _apart(add: _Add, value: str, shape: tuple[int, ...], blocks: _Blocks) -> str:
    """The filters of each place of a block as neighbours along the axis again."""
    at, each = blocks.axis, blocks.each
    batch, filters, *rest = shape[0], shape[1] // each, *shape[2:]
    whole = _put((batch, filters, *rest), at, shape[at] * each)
    if each == 1:
        return value
    if at == len(shape) - 1:
        last = add("last", Transpose((0, *range(2, len(shape)), 1)), value)
        lines = add("lines", Reshape((batch, *whole[2:], filters)), last)
        return add("apart", Transpose((0, len(shape) - 1, *range(1, len(shape) - 1))), lines)
    split = (batch, each, filters, *rest)
    perm = (0, 2, *range(3, at + 2), 1, *range(at + 2, len(split)))
    return add("apart", Rearrange(split, perm, whole, 0, whole), value)


def _shifted(editor: GraphEditor, name: str, op: Conv, blocks: _Blocks) -> Array:
    """[F,1,...,taps,...] as [each * F,size,...,window,...]: filter o * F + f has tap k at place
    o * step + k * dilation + shift of the window."""
    own = blocks.axis - 2
    weights = editor.constant(name)
    assert weights is not None
    lines = np.moveaxis(weights[:, 0], own + 1, -1)
    wide = np.zeros((blocks.each, len(lines), blocks.size, *lines.shape[1:-1], blocks.window), lines.dtype)
    for o in range(blocks.each):
        for tap in range(lines.shape[-1]):
            block, place = divmod(o * op.strides[own] + tap * op.dilations[own] + blocks.shift, blocks.size)
            wide[o, :, place, ..., block] = lines[..., tap]
    return np.ascontiguousarray(np.moveaxis(wide.reshape(-1, *wide.shape[2:]), -1, own + 2))


def _constant(editor: GraphEditor, name: str, array: Array) -> str:
    dtype = editor.type(name).dtype
    return editor.new_constant(f"{name}{SUFFIX}", array.astype(held_dtype(dtype)), dtype)


def _put(numbers: tuple[int, ...], at: int, number: int) -> tuple[int, ...]:
    return (*numbers[:at], number, *numbers[at + 1 :])


FOLD_LINES = Pass("fold-lines", _run, pays_on=on_tensor_cores)
