"""Takes and puts whole slices where each element of one has the same index.

Frameworks gather rows by an index that is expanded to the row's columns: `x.gather(1, best.unsqueeze(-1).expand(-1, -1,
d))` takes the best queries of a detector, and what a graph's edges bring is added to its nodes by `scatter_add`.
Exporters write an index of 64 bits for each element: four times as many bytes as there are halves. A slice's one index
says as much, and slices move in whole accesses.
"""

from __future__ import annotations

from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements, GatherND
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.graph.ops.moves.shape import Cast, Identity, Reshape
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_MOVES = 4
"""Casts, copies and expansions between an index and what is gathered by it."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(REPEATED_INDICES.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, GatherElements | ScatterElements) or node.epilogue or editor.is_constant(node.inputs[0]):
            continue
        data, index = (editor.type(name).shape for name in node.inputs[:2])
        if prod(index[op.axis + 1 :]) <= 1:
            continue
        chain = Chain(editor, f"{node.name}.slices")
        rows = _rows(editor, chain, node.inputs[1], op.axis)
        if rows is None:
            continue
        apart = [axis for axis, (m, n) in enumerate(zip(data, index, strict=True)) if axis != op.axis and m != n]
        if apart:
            journal.declined(node.name, f"its indices leave out elements along axis {apart[0]}")
            continue
        _put(editor, node, op, chain, rows)
        journal.did(node.name, "slices", f"'{node.inputs[1]}' has one index for each {prod(index[op.axis + 1 :])}")
    return journal.result(editor.finish())


def _rows(editor: GraphEditor, chain: Chain, index: str, axis: int) -> str | None:
    """An index that is the same along all axes behind `axis`, with one element along each of these; as few along those
    in front as it has by itself. None of another."""
    rank, value = editor.type(index).rank, index
    repeated = [False] * rank
    for _ in range(_MOVES):
        array, node = editor.constant(value), editor.producer(value)
        if array is not None:
            whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
            first = whole.reshape(*whole.shape[: axis + 1], -1)[..., :1]
            if not (whole.reshape(*whole.shape[: axis + 1], -1) == first).all():
                return None
            first = first.reshape(*whole.shape[: axis + 1], *(1,) * (rank - 1 - axis))
            return editor.new_constant(f"{chain.label}.index", np.ascontiguousarray(first), editor.type(value).dtype)
        if node is None or node.epilogue:
            return None
        if isinstance(node.op, Expand):
            source = editor.type(node.inputs[0]).shape
            own = (1,) * (rank - len(source)) + source
            repeated = [each or n == 1 for each, n in zip(repeated, own, strict=True)]
        elif isinstance(node.op, Cast):
            pair = editor.type(node.inputs[0]).dtype, editor.type(value).dtype
            if pair not in ((DType.I32, DType.I64), (DType.I64, DType.I64), (DType.I32, DType.I32)):
                return None
        elif not isinstance(node.op, Identity):
            return None
        value = node.inputs[0]
        if all(repeated[axis + 1 :]):
            shape = editor.type(value).shape
            own = (1,) * (rank - len(shape)) + shape
            return value if own == shape else chain.add(Reshape(own), [value])
    return None


def _put(editor: GraphEditor, node: Node, op: GatherElements | ScatterElements, chain: Chain, rows: str) -> None:
    index, own = editor.type(node.inputs[1]).shape, editor.type(rows).shape
    lines, many = index[: op.axis], index[op.axis]
    old = node.inputs
    if isinstance(op, GatherElements) and prod(own[: op.axis]) == 1:
        rows = chain.add(Reshape((many,)), [_along(chain, rows, own, (*(1,) * op.axis, many))])
        made: Op = Gather(op.axis)
    else:
        rows = chain.add(Reshape((*lines, many, 1)), [_along(chain, rows, own, (*lines, many))])
        made = GatherND(op.axis) if isinstance(op, GatherElements) else ScatterND(op.reduction, op.axis)
    inputs = (node.inputs[0], rows, *node.inputs[2:])
    end = Node(node.name, made, inputs, node.outputs, covers=joined(node.covers))
    editor.replace(node, *chain.nodes, end)
    editor.prune(old)


def _along(chain: Chain, rows: str, own: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """The index of each line, where some have it in common."""
    ones = (1,) * (len(own) - len(wanted))
    return rows if own == (*wanted, *ones) else chain.add(Expand((*wanted, *ones)), [rows])


REPEATED_INDICES = Pass("repeated-indices", _run)
