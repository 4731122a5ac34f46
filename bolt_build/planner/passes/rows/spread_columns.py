"""Multiplies parts of rows that an expand or a gather repeats before they are repeated.

Networks of pairs multiply [x_i, x_j, d_ij] for all i and j: each x is repeated along one axis, or taken for every edge.
The product is the sum of those of the parts, and that of x_i is the same for all j. For example the messages of EGNN
and of graphs with lists of edges, relation networks, and additive attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from bolt_build.graph.ir import Graph, Node, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.operands import broadcast
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_TIMES = 4
"""How often a repeated part is there at least: sums read and write the products' results once more."""


@dataclass(frozen=True)
class _Part:
    """Columns of the concatenation; where they are repeated, what is, and the gather that does it by indices."""

    value: str
    begin: int
    end: int
    source: str | None = None
    gather: Node | None = None


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SPREAD_COLUMNS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.op != MatMul() or node.epilogue or not editor.is_constant(node.inputs[1]):
            continue
        concat, weight = editor.producer(node.inputs[0]), editor.type(node.inputs[1])
        if concat is None or not isinstance(concat.op, Concat) or concat.epilogue or weight.rank != 2:
            continue
        if concat.op.axis != editor.type(node.inputs[0]).rank - 1:
            continue
        parts = _parts(editor, concat)
        if not any(part.source for part in parts):
            continue
        if (obstacle := _obstacle(editor, node, parts)) is not None:
            journal.declined(node.name, obstacle)
            continue
        names = ", ".join(f"'{part.source}'" for part in parts if part.source)
        _multiply(editor, node, concat, parts)
        journal.did(node.name, "multiplies", f"{names} before it is repeated")
    return journal.result(editor.finish())


def _parts(editor: GraphEditor, concat: Node) -> list[_Part]:
    parts, begin = list[_Part](), 0
    for value in concat.inputs:
        type_, node = editor.type(value), editor.producer(value)
        part = _Part(value, begin, begin + type_.shape[-1])
        if node is not None and isinstance(node.op, Expand | Gather) and not node.epilogue:
            given = editor.type(node.inputs[0])
            gather = node if isinstance(node.op, Gather) else None
            if _TIMES * given.elements <= type_.elements and _keeps_rows(node, given, type_):
                part = replace(part, source=node.inputs[0], gather=gather)
        parts.append(part)
        begin += type_.shape[-1]
    return parts


def _keeps_rows(node: Node, given: TensorType, made: TensorType) -> bool:
    """Whether rows of `given` stay rows: what is repeated is not within them, and an expand adds no axes."""
    if isinstance(node.op, Gather):
        return node.op.axis != given.rank - 1
    return given.rank == made.rank and given.shape[-1] == made.shape[-1]


def _obstacle(editor: GraphEditor, node: Node, parts: list[_Part]) -> str | None:
    """Why a product keeps all parts together; None where some are multiplied by themselves."""
    if (reason := editor.not_private(node.inputs[0])) is not None:
        return reason
    shapes = [editor.type(_repeated(part)).shape[:-1] for part in parts]
    if reduce(broadcast, shapes) != editor.type(node.outputs[0]).shape[:-1]:
        return "all parts are repeated along the same axis"
    columns = editor.type(node.inputs[1]).shape[1]
    repeated = sum(part.end - part.begin for part in parts if part.source)
    if repeated < columns:
        return f"{repeated} columns that are repeated are fewer than the {columns} that a sum would move again"
    return None


def _repeated(part: _Part) -> str:
    """The value that has the shape of the part's product."""
    return part.source if part.source and part.gather is None else part.value


def _multiply(editor: GraphEditor, node: Node, concat: Node, parts: list[_Part]) -> None:
    chain, weight = Chain(editor, node.name), editor.constant(node.inputs[1])
    assert weight is not None
    apart = [part for part in parts if not part.source]
    products = list[str]()
    for own in (*([apart] if apart else []), *([part] for part in parts if part.source)):
        what = "parts" if own is apart else f"repeated{len(products)}"
        values = [part.source or part.value for part in own]
        read = values[0] if len(values) == 1 else chain.add(concat.op, values, what=f"{what}.read")
        rows = np.concatenate([weight[part.begin : part.end] for part in own])
        name = editor.new_constant(f"{node.inputs[1]}.{what}", rows, editor.type(node.inputs[1]).dtype)
        product = chain.add(MatMul(), (read, name, *(() if products else node.inputs[2:])), what=what)
        if own[0].gather is not None:
            product = chain.add(own[0].gather.op, (product, *own[0].gather.inputs[1:]), what=f"{what}.taken")
        products.append(product)
    # the smallest come first: what those make that are repeated along the same axes is as small
    *rest, largest = sorted(products, key=lambda name: editor.type(name).elements)
    total = reduce(lambda so_far, value: chain.add(Binary("add"), (so_far, value)), rest)
    covers = joined(concat.covers, node.covers)
    last = Node(node.name, Binary("add"), (largest, total), node.outputs, covers=covers)
    editor.replace(node, *chain.nodes, last)
    editor.prune(concat.outputs)


SPREAD_COLUMNS = Pass("spread-columns", _run)
