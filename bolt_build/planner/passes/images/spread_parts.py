"""Multiplies parts of a concatenation that are alike at every position once an image, not at every position.

A 1x1 convolution of [x, m], where m is one number a channel of each image that an expand repeats, is that of x, plus
that of m. For example the mean and deviation of a whole utterance beside each frame in ECAPA-TDNN, and the shape's
features beside each point in PointNet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.image_numbers import are_of_images
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.passes.fold.linear import is_of_points
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_LEAST = 2
"""Channels that are repeated, over those that the convolution leaves: the sum reads and writes these once more."""


@dataclass(frozen=True)
class _Part:
    """A part of the concatenation: the channels where it begins and ends, and what is repeated, where it is that."""

    value: str
    begin: int
    end: int
    source: str | None


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SPREAD_PARTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Conv) or not is_of_points(editor, node):
            continue
        concat = editor.producer(node.inputs[0])
        if concat is None or concat.op != Concat(1) or concat.epilogue:
            continue
        parts = _parts(editor, concat)
        if not any(part.source for part in parts) or all(part.source for part in parts):
            continue
        if (obstacle := _obstacle(editor, node, node.op, parts)) is not None:
            journal.declined(node.name, obstacle)
            continue
        names = ", ".join(f"'{part.source}'" for part in parts if part.source)
        _multiply(editor, node, node.op, concat, parts)
        journal.did(node.name, "multiplies", f"{names} once an image, not at every position")
    return journal.result(editor.finish())


def _parts(editor: GraphEditor, concat: Node) -> list[_Part]:
    parts, begin = list[_Part](), 0
    for value in concat.inputs:
        shape, node = editor.type(value).shape, editor.producer(value)
        source = None
        if node is not None and isinstance(node.op, Expand) and not node.epilogue:
            (given,) = node.inputs
            source = given if are_of_images(editor.type(given).shape, shape, 1) else None
        parts.append(_Part(value, begin, begin + shape[1], source))
        begin += shape[1]
    return parts


def _obstacle(editor: GraphEditor, node: Node, op: Conv, parts: list[_Part]) -> str | None:
    """Why a convolution keeps all parts together; None where some are multiplied by themselves."""
    if (reason := weight_obstacle(editor, node)) is not None:
        return reason
    if op.groups != 1:
        return f"'{node.name}' has groups"
    if any((*op.pads_begin, *op.pads_end)):
        return f"'{node.name}' pads what it reads with zeros"
    if (reason := editor.not_private(node.inputs[0])) is not None:
        return reason
    filters = editor.type(node.inputs[1]).shape[0]
    repeated = sum(part.end - part.begin for part in parts if part.source)
    if repeated < _LEAST * filters:
        return f"{repeated} channels that are repeated are not {_LEAST} times the {filters} that a sum would move again"
    return None


def _multiply(editor: GraphEditor, node: Node, op: Conv, concat: Node, parts: list[_Part]) -> None:
    chain = Chain(editor, node.name)

    def product(what: str, op: Conv, own: list[_Part], values: list[str], bias: tuple[str, ...]) -> str:
        read = values[0] if len(values) == 1 else chain.add(Concat(1), values, what=f"{what}.parts")
        weight = editor.constant(node.inputs[1])
        assert weight is not None
        columns = np.concatenate([weight[:, part.begin : part.end] for part in own], axis=1)
        name = editor.new_constant(f"{node.inputs[1]}.{what}", columns, editor.type(node.inputs[1]).dtype)
        return chain.add(op, (read, name, *bias), what=what)

    apart, alike = [part for part in parts if not part.source], [part for part in parts if part.source]
    once = replace(op, strides=(1,) * len(op.strides))
    everywhere = product("positions", op, apart, [part.value for part in apart], node.inputs[2:])
    sources = [part.source for part in alike if part.source]
    once_an_image = product("images", once, alike, sources, ())
    covers = joined(concat.covers, node.covers)
    total = Node(node.name, Binary("add"), (everywhere, once_an_image), node.outputs, covers=covers)
    editor.replace(node, *chain.nodes, total)
    editor.prune(concat.outputs)


SPREAD_PARTS = Pass("spread-parts", _run)
