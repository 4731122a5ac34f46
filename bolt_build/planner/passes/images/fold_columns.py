"""Computes depthwise convolutions with very large windows on tensor cores: eight neighbouring columns become channels,
or eight rows where the window is higher than wide (SLaK's strips of 51 by 5).

A window of one channel over columns is then a window over blocks of eight, from eight channels to eight, whose weights
are those of the window shifted by each column: a Toeplitz matrix. So it is a convolution with groups of eight, which
multiplies few zeros more than the window reaches over: a window of 31 columns is one of five blocks.

Windows of up to 13 rows and 17 columns stay where kernels in bands compute them (`kinds/banded.py`), from Ampere
on: those multiply as few zeros, and move nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Pad, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

_BLOCK = 8
"""Columns that become channels: a group that tensor cores take whole."""
_LEAST = 80
"""Taps of a window from which on products pay, with the two movements around them."""
_LEAST_ALONG = ((40, 1 << 20, 1), (31, 4 << 20, _BLOCK))
"""The same of a window over columns alone, whose blocks have few zeros, for images of so many elements and of a
multiple of so many columns: beside many bytes a launch is little, and whole blocks need no zeros. No GPU has timed it.
"""
_BANDS = (13, 17)
"""Rows and columns of windows that kernels in bands take, for an even number of channels."""
_AMPERE, _HALVES = 80, ("fp16", "bf16")
_LINES = {-1: "columns", -2: "rows"}
SUFFIX = ".blocks"
"""Behind the name of a weight over blocks of columns."""


@dataclass(frozen=True)
class _Blocks:
    """Blocks of columns of input and output, those of a window, and those of zeros in front and behind; `shift` is
    where the first tap of column 0 lies in its block. `axis` counts from the last one: -1 are columns, -2 rows."""

    axis: int
    given: int
    made: int
    window: int
    before: int
    behind: int
    shift: int


def _blocks(op: Conv, x: Sequence[int], y: Sequence[int], kernel: Sequence[int], axis: int) -> _Blocks:
    given, made = -(-x[axis] // _BLOCK), -(-y[axis] // _BLOCK)
    before = -(-op.pads_begin[axis] // _BLOCK)
    shift = before * _BLOCK - op.pads_begin[axis]
    window = (_BLOCK - 1 + (kernel[axis] - 1) * op.dilations[axis] + shift) // _BLOCK + 1
    return _Blocks(axis, given, made, window, before, made - given - before + window - 1, shift)


def _axis(kernel: Sequence[int]) -> int:
    """Along which a window has more taps: blocks along it have fewer zeros."""
    return -2 if len(kernel) > 1 and kernel[-2] > kernel[-1] else -1


def _run(graph: Graph, *, bands: bool) -> PassResult:
    """`bands`: whether the target has kernels in bands."""
    editor, journal = GraphEditor(graph), Journal(FOLD_COLUMNS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Conv) or not node.op.groups > 1 or not editor.type(node.inputs[0]).elements:
            continue
        filters, each, *kernel = editor.type(node.op_inputs[1]).shape
        x, y = editor.type(node.inputs[0]).shape, editor.type(node.outputs[0]).shape
        if each > 1 or filters != node.op.groups or prod(kernel) < _least(kernel, x) or len(kernel) > 2:
            continue
        if bands and _is_of_bands(node.op, filters, kernel):
            journal.declined(node.name, f"a kernel in bands takes its window of {kernel[0]} by {kernel[1]}")
            continue
        axis = _axis(kernel)
        blocks = _blocks(node.op, x, y, kernel, axis)
        obstacle = _obstacle(editor, node, node.op, blocks)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
            continue
        _fold(editor, node, node.op, blocks)
        lines = _LINES[axis]
        reason = f"a window of {kernel[axis]} {lines} is one of {blocks.window} blocks of {_BLOCK}"
        journal.did(node.name, f"folded {lines} into channels", reason)
    return journal.result(editor.finish())


def _is_of_bands(op: Conv, filters: int, kernel: Sequence[int]) -> bool:
    whole = all(pad % gap == 0 for pad, gap in zip(op.pads_begin, op.dilations, strict=True))
    plain = len(kernel) == len(_BANDS) and {*op.strides} == {1} and whole and filters % 2 == 0
    return plain and all(1 < taps <= most for taps, most in zip(kernel, _BANDS, strict=True))


def _least(kernel: Sequence[int], x: Sequence[int]) -> int:
    """Taps from which on the window of an image is folded."""
    if kernel[-1] != prod(kernel):
        return _LEAST
    found = (taps for taps, size, columns in _LEAST_ALONG if prod(x) >= size and x[-1] % columns == 0)
    return min(found, default=_LEAST)


def _obstacle(editor: GraphEditor, node: Node, op: Conv, blocks: _Blocks) -> str | None:
    """Why the convolution stays as it is."""
    if op.strides[blocks.axis] != 1:
        return f"its window moves by {op.strides[blocks.axis]} {_LINES[blocks.axis]}"
    if not all(map(editor.is_constant, node.op_inputs[1:])):
        return "its weights are computed"
    if blocks.behind < 0:
        return f"its windows leave out {_LINES[blocks.axis]} of the image"
    shape = editor.type(node.outputs[0]).shape
    for stage in node.epilogue:
        if stage.operand is not None and editor.type(node.inputs[stage.operand]).shape != shape:
            return f"'{node.inputs[stage.operand]}' is broadcast"
    return None


def _fold(editor: GraphEditor, node: Node, op: Conv, blocks: _Blocks) -> None:
    made = list[Node]()

    def add(what: str, op: Op, value: str) -> str:
        (type_,) = op.infer([editor.type(value)])
        label = f"{node.name}.{what}{len(made) or ''}"
        result, name = editor.new_value(label, type_), editor.free_node_name(label)
        made.append(Node(name, op, (value,), (result,)))
        return result

    def folded(value: str, count: int) -> str:
        """The value with blocks of columns as channels."""
        shape = editor.type(value).shape
        at = len(shape) + blocks.axis
        if missing := count * _BLOCK - shape[at]:
            zeros = (0,) * len(shape)
            value = add("padded", Pad(zeros, _put(zeros, at, missing)), value)
        split = (*shape[:at], count, _BLOCK, *shape[at + 1 :])
        perm = (0, 1, at + 1, *(axis for axis in range(2, len(split)) if axis != at + 1))
        whole = _put((shape[0], shape[1] * _BLOCK, *shape[2:]), at, count)
        return add("columns", Rearrange(split, perm, whole, 0, whole), value)

    operands = {stage.operand for stage in node.epilogue}
    own = [index for index in range(len(node.inputs)) if index not in operands]
    inputs = []
    for index, name in enumerate(node.inputs):
        array, dtype = editor.constant(name), editor.type(name).dtype
        if index == own[0]:
            inputs.append(folded(name, blocks.given))
        elif index in operands:
            inputs.append(folded(name, blocks.made))
        else:
            assert array is not None
            wider = _toeplitz(array, op.dilations[blocks.axis], blocks) if index == own[1] else np.repeat(array, _BLOCK)
            inputs.append(editor.new_constant(f"{name}{SUFFIX}", wider.astype(held_dtype(dtype)), dtype))
    own_axis = len(op.strides) + blocks.axis
    flat = replace(
        op, pads_begin=_put(op.pads_begin, own_axis, blocks.before),
        pads_end=_put(op.pads_end, own_axis, blocks.behind), dilations=_put(op.dilations, own_axis, 1),
    )  # fmt: skip
    (type_,) = flat.infer([editor.type(inputs[index]) for index in own])
    wide = editor.new_value(f"{node.name}.wide", type_)
    name = editor.free_node_name(f"{node.name}.wide")
    made.append(replace(node, name=name, op=flat, inputs=tuple(inputs), outputs=(wide,)))
    shape = editor.type(node.outputs[0]).shape
    at = len(shape) + blocks.axis
    split = (shape[0], shape[1], _BLOCK, *_put(shape, at, blocks.made)[2:])
    perm = (0, 1, *range(3, at + 2), 2, *range(at + 2, len(split)))
    whole = _put(shape, at, blocks.made * _BLOCK)
    back = Rearrange(split, perm, whole, 0, whole)
    if whole == shape:
        made.append(Node(node.name, back, (wide,), node.outputs))
    else:
        cut = Slice((0,) * len(shape), shape, (1,) * len(shape))
        made.append(Node(node.name, cut, (add("back", back, wide),), node.outputs))
    editor.replace(node, *made)


def _put(numbers: tuple[int, ...], at: int, number: int) -> tuple[int, ...]:
    return (*numbers[:at], number, *numbers[at + 1 :])


def _toeplitz(weights: Array, dilation: int, blocks: _Blocks) -> Array:
    """[C,1,*rows,taps] as [C * 8,8,*rows,window]: filter c * 8 + o has tap k in column o + k * dilation + shift. Where
    rows are folded, both axes change places."""
    channels, _, *rows, taps = np.moveaxis(weights, blocks.axis, -1).shape
    wide = np.zeros((channels, _BLOCK, _BLOCK, *rows, blocks.window), weights.dtype)
    for o in range(_BLOCK):
        for tap in range(taps):
            block, column = divmod(o + tap * dilation + blocks.shift, _BLOCK)
            wide[:, o, column, ..., block] = np.moveaxis(weights, blocks.axis, -1)[:, 0, ..., tap]
    found = wide.reshape(channels * _BLOCK, _BLOCK, *rows, blocks.window)
    return np.ascontiguousarray(np.moveaxis(found, -1, blocks.axis))


def _has_bands(target: Target, precision: str) -> bool:
    return target.gpu is not None and target.gpu.sm >= _AMPERE and precision in _HALVES


def _has_no_bands(target: Target, precision: str) -> bool:
    return on_tensor_cores(target, precision) and not _has_bands(target, precision)


FOLD_COLUMNS = Pass("fold-columns", partial(_run, bands=False), pays_on=_has_no_bands)
FOLD_BEYOND_BANDS = Pass("fold-columns", partial(_run, bands=True), pays_on=_has_bands)
"""The same where kernels in bands take windows that are not larger."""
