"""Multiplies gated branches side by side instead of adding them up in front of a 1x1 convolution:
W (x g + y h) is [W W] ([x y] [g h]).

A convolution multiplies by one number a channel of each image as it loads. Of a sum it loads a tensor that others have
gated, added up and stored. For example the streams of OSNet, and the branches of selective kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.image_numbers import numbers_of
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fold.channels import SUFFIX, weight_obstacle
from bolt_build.planner.passes.fold.linear import is_of_points
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

MOST_FILTERS = 512
"""A branch more is a product of all filters more, and some ten bytes of each pixel and channel less to move: beyond so
many filters tensor cores take longer than memory."""
_ADD, _MUL = Binary("add"), Binary("mul")


@dataclass(frozen=True)
class _Branch:
    """A term of the sum: a tensor, and the gate that it is multiplied by."""

    node: Node
    value: str
    gate: str


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(GATE_BRANCHES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Conv) or not is_of_points(editor, node):
            continue
        sums, terms = _terms(editor, node.inputs[0])
        branches = [each for term in terms if (each := _branch(editor, term)) is not None]
        if len(terms) < 2 or not branches:
            continue
        ungated = [term for term in terms if _branch(editor, term) is None]
        if (obstacle := _obstacle(editor, node, ungated)) is not None:
            journal.declined(node.name, obstacle)
            continue
        _multiply(editor, node, sums, branches)
        names = ", ".join(f"'{each.value}'" for each in branches)
        journal.did(node.name, "multiplies", f"{names} side by side, and their gates")
    return journal.result(editor.finish())


def _terms(editor: GraphEditor, value: str) -> tuple[list[Node], list[str]]:
    """The additions that nobody else reads which make a value, the last first, and what they add up."""
    node = editor.producer(value)
    if node is None or node.op != _ADD or node.epilogue or editor.not_private(value) is not None:
        return [], [value]
    if any(editor.type(name) != editor.type(value) for name in node.inputs):
        return [], [value]
    (first, those), (second, others) = (_terms(editor, name) for name in node.inputs)
    return [node, *first, *second], [*those, *others]


def _branch(editor: GraphEditor, value: str) -> _Branch | None:
    """A term as a tensor times one number of each image and channel; None where it is none, or read elsewhere too."""
    node = editor.producer(value)
    if node is None or node.op != _MUL or node.epilogue or editor.not_private(value) is not None:
        return None
    for tensor in node.inputs:
        at = numbers_of(editor, node, tensor, 1)
        if at is not None:
            return _Branch(node, tensor, node.inputs[at])
    return None


def _obstacle(editor: GraphEditor, node: Node, ungated: list[str]) -> str | None:
    """Why a convolution does not multiply the terms of a sum side by side; None where it may."""
    if (reason := weight_obstacle(editor, node)) is not None:
        return reason
    assert isinstance(node.op, Conv)
    if node.op.groups != 1:
        return f"'{node.name}' has groups"
    if ungated:
        return f"'{ungated[0]}' is added without a gate"
    if editor.type(node.inputs[0]).dtype not in PRECISIONS.values():
        return f"'{node.inputs[0]}' is {editor.type(node.inputs[0]).dtype.value}"
    if (filters := editor.type(node.inputs[1]).shape[0]) > MOST_FILTERS:
        return f"multiplying each branch by {filters} filters would take longer than adding them up"
    return None


def _multiply(editor: GraphEditor, node: Node, sums: list[Node], branches: list[_Branch]) -> None:
    weight = editor.constant(node.inputs[1])
    assert weight is not None
    dtype = editor.type(node.inputs[1]).dtype
    chain = Chain(editor, node.name)
    tensors = chain.add(Concat(1), (each.value for each in branches), what="branches")
    gates = chain.add(Concat(1), (each.gate for each in branches), what="gates")
    gated = chain.add(_MUL, (tensors, gates), what="gated")
    repeated = np.concatenate([weight] * len(branches), axis=1)
    name = editor.new_constant(f"{node.inputs[1].removesuffix(SUFFIX)}{SUFFIX}", repeated, dtype)
    behind = (*sums, *(each.node for each in branches))
    covers = joined(*(each.covers for each in reversed(behind)), node.covers)
    editor.replace(
        node, *chain.nodes, Node(node.name, node.op, (gated, name, *node.inputs[2:]), node.outputs, covers=covers)
    )  # fmt: skip
    for each in behind:
        editor.remove(each)


GATE_BRANCHES = Pass("gate-branches", _run, pays_on=on_tensor_cores)
