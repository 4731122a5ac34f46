"""Scales an image and the result of its convolution in place of the filters, where factors of data scale these.

A style scales the filters of StyleGAN by channel and divides them by their lengths; attention scales those of other
networks by channel and by filter. Filters of each image would be data, and images groups of one convolution. The image
times the factors of channels, convolved with the filters as they are, times the factors of filters is the same, and the
filters are constant. The squared length of scaled filters is a product too: of squared factors with squared filters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

Shape = tuple[int, ...]
_Add = Callable[..., str]


@dataclass(frozen=True)
class _Factor:
    """What filters are multiplied with, or divided by: a number of each image and filter, or of each image and channel
    (`of_channels`). `shape` is [images, filters or channels], with ones where it has none."""

    function: str
    value: str
    shape: tuple[int, int]
    of_channels: bool


@dataclass(frozen=True)
class _Scaled:
    """Filters [images, *window] as `constant` [*window] times factors; a window is [filters, channels, ...]. `steps`
    are the scaled filters on the way, each with the factors that it has."""

    constant: str
    images: int
    window: Shape
    factors: tuple[_Factor, ...]
    steps: tuple[tuple[str, tuple[_Factor, ...]], ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SCALE_IMAGES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Conv) or node.epilogue or editor.is_constant(node.inputs[1]):
            continue
        scaled = _scaled(editor, node.inputs[1])
        if scaled is None or not scaled.factors:
            journal.declined(node.name, "its filters are data, and no constant ones with factors")
            continue
        if (obstacle := _obstacle(editor, node, node.op, scaled)) is not None:
            journal.declined(node.name, f"factors scale its filters, but {obstacle}")
            continue
        for value, factors in scaled.steps:
            _measure(editor, journal, value, factors, scaled)
        _convolve(editor, node, node.op, scaled)
        journal.did(node.name, "scaled its image and its result", "factors of data scale its filters")
    return journal.result(editor.finish())


def _scaled(editor: GraphEditor, value: str) -> _Scaled | None:
    """The filters of a convolution as a constant and factors; None where they are none."""
    window = editor.type(value).shape
    node = editor.producer(value)
    full = (1, *window)
    while node is not None and isinstance(node.op, Reshape) and not node.epilogue:
        value = node.inputs[0]
        shape = editor.type(value).shape
        if shape[-len(window) + 1 :] == window[1:] and prod(shape) == prod(window) and len(shape) == len(window) + 1:
            full = shape
        elif shape != window:
            return None
        node = editor.producer(value)
    return _factored(editor, value, full)


def _factored(editor: GraphEditor, value: str, full: Shape) -> _Scaled | None:
    """`full`: the shape of the filters, that of all images in front."""
    shape = editor.type(value).shape
    if editor.is_constant(value):
        own = (1,) * (len(full) - len(shape)) + shape
        return _Scaled(value, full[0], full[1:], (), ()) if own == (1, *full[1:]) else None
    node = editor.producer(value)
    if node is None or node.epilogue or not isinstance(node.op, Binary) or node.op.function not in ("mul", "div"):
        return None
    sides = (0, 1) if node.op.function == "mul" else (0,)
    for side in sides:
        factor = _factor(editor, node.op.function, node.inputs[1 - side], full)
        inner = None if factor is None else _factored(editor, node.inputs[side], full)
        if factor is not None and inner is not None:
            factors = (*inner.factors, factor)
            return replace(inner, factors=factors, steps=(*inner.steps, (value, factors)))
    return None


def _factor(editor: GraphEditor, function: str, value: str, full: Shape) -> _Factor | None:
    shape = editor.type(value).shape
    if len(shape) > len(full) or prod(shape) == prod(full[1:]):
        return None
    images, filters, channels, *window = (*(1,) * (len(full) - len(shape)), *shape)
    if prod(window) > 1 or min(filters, channels) > 1:
        return None
    return _Factor(function, value, (images, max(filters, channels)), channels > 1)


def _obstacle(editor: GraphEditor, node: Node, op: Conv, scaled: _Scaled) -> str | None:
    """Why the filters stay scaled; None where image and result can be."""
    if op.groups % scaled.images:
        return f"{op.groups} groups are not those of {scaled.images} images"
    if scaled.images > 1 and editor.type(node.inputs[0]).shape[0] > 1:
        return "each image is convolved with the filters of all"
    if op.groups > scaled.images and any(factor.of_channels for factor in scaled.factors):
        return "groups share a factor of channels"
    return None


def _adder(editor: GraphEditor, made: list[Node], node: Node) -> _Add:
    def add(op: Op, *inputs: str) -> str:
        (type_,) = op.infer([editor.type(name) for name in inputs])
        value = editor.new_value(f"{node.outputs[0]}.{op.kind}", type_)
        names = {each.name for each in made}
        made.append(Node(editor.free_node_name(f"{node.name}.{op.kind}", names), op, inputs, (value,)))
        return value

    return add


def _convolve(editor: GraphEditor, node: Node, op: Conv, scaled: _Scaled) -> None:
    made = list[Node]()
    add = _adder(editor, made, node)
    (count, channels, *pixels), window = editor.type(node.inputs[0]).shape, editor.type(node.inputs[1]).shape
    out = editor.type(node.outputs[0]).shape
    images, ones = scaled.images, (1,) * len(pixels)
    x = node.inputs[0]
    if images > 1:
        x = add(Reshape((images, channels // images, *pixels)), x)
    for factor in (each for each in scaled.factors if each.of_channels):
        x = add(Binary(factor.function), x, add(Reshape((*factor.shape, *ones)), factor.value))
    filters = add(Reshape((window[0] // images, *window[1:])), scaled.constant)
    plain = Conv(op.strides, op.pads_begin, op.pads_end, op.dilations, op.groups // images)
    y = add(plain, x, filters)
    for factor in (each for each in scaled.factors if not each.of_channels):
        y = add(Binary(factor.function), y, add(Reshape((*factor.shape, *ones)), factor.value))
    if len(node.inputs) > 2:
        y = add(Binary("add"), y, add(Reshape((images, out[1] // images, *ones)), node.inputs[2]))
    assert images == 1 or count == 1
    editor.replace(node, *made, Node(node.name, Reshape(out), (y,), node.outputs, covers=node.covers))
    editor.prune((node.inputs[1],))


def _measure(editor: GraphEditor, journal: Journal, step: str, factors: tuple[_Factor, ...], scaled: _Scaled) -> None:
    """Makes products of the sums of squares of scaled filters, where factors of channels alone have scaled them."""
    if len(factors) != 1 or not factors[0].of_channels or factors[0].function != "mul":
        return
    for reader in editor.readers(step):
        squares = (reader,) if _squares(editor, reader) and not reader.epilogue else ()
        for total in (reader, *(each for square in squares for each in editor.readers(square.outputs[0]))):
            wanted = ("sum_square",) if total is reader else ("sum", "mean")
            if isinstance(total.op, Reduce) and total.op.mode in wanted and not total.epilogue:
                _multiply(editor, journal, total, total.op, factors[0], scaled)


def _squares(editor: GraphEditor, node: Node) -> bool:
    if node.op == Binary("mul"):
        return node.inputs[0] == node.inputs[1]
    exponent = editor.constant(node.inputs[1]) if node.op == Binary("pow") else None
    return exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) == 2.0


def _multiply(editor: GraphEditor, journal: Journal, total: Node, op: Reduce, factor: _Factor, scaled: _Scaled) -> None:
    """The squares of each filter's elements, summed up over its window, times those of the factors."""
    rank, (filters, channels, *window) = len(editor.type(total.inputs[0]).shape), scaled.window
    if op.axes != tuple(range(rank - len(window) - 1, rank)):
        return
    made = list[Node]()
    add = _adder(editor, made, total)
    own = add(Reshape((filters, channels, prod(window))), scaled.constant)
    squares = add(Reduce("sum", (2,), False), add(Binary("mul"), own, own))
    if op.mode == "mean":
        dtype = editor.type(own).dtype
        count = np.asarray(channels * prod(window), held_dtype(dtype))
        squares = add(Binary("div"), squares, editor.new_constant(f"{total.name}.count", count, dtype))
    rows = add(Reshape(factor.shape), factor.value)
    product = add(MatMul(), add(Binary("mul"), rows, rows), add(Transpose((1, 0)), squares))
    last = Reshape(editor.type(total.outputs[0]).shape)
    editor.replace(total, *made, Node(total.name, last, (product,), total.outputs, covers=total.covers))
    editor.prune(total.inputs)
    journal.did(total.name, "made a product of squares", "a factor of each channel scales the filters")


SCALE_IMAGES = Pass("scale-images", _run)
