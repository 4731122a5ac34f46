"""Computes what repeats itself once, and repeats the result. For example exporters make a mask of keys as large as all
scores before they turn it into numbers: attention reads what each key has.

Constants of booleans repeat where they are equal: they are no weights. Others do where an expand has made them large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Graph, Node, Op, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Logic, Where
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

_ELEMENTWISE = (Ask, Binary, Cast, Compare, Logic, Where)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(EXPAND_LATE.name)
    for node in editor.nodes():
        if not isinstance(node.op, _ELEMENTWISE) or node.epilogue:
            continue
        arrays = [_once(editor, name) for name in node.inputs]
        sources = [_source(editor, name) for name in node.inputs]
        types = [
            editor.type(source) if array is None else TensorType(DType.BOOL, array.shape)
            for array, source in zip(arrays, sources, strict=True)
        ]
        (own,), (result,) = node.op.infer(types), node.outputs
        every = editor.type(result)
        if own.elements >= every.elements:
            continue
        beside = [source for source, array in zip(sources, arrays, strict=True) if not _changes_nothing(node.op, array)]
        if len(beside) == 1 < len(sources) and editor.type(beside[0]) == own:
            editor.replace(node, replace(node, op=Expand(every.shape), inputs=(beside[0],)))
        else:
            _compute(editor, node, own, sources, arrays)
        editor.prune(set(node.inputs))
        journal.did(node.name, "computed once", f"{list(own.shape)}, which {list(every.shape)} repeats")
    return journal.result(editor.finish())


def _compute(
    editor: GraphEditor, node: Node, own: TensorType, sources: Sequence[str], arrays: Sequence[Array | None]
) -> None:
    """The node for what does not repeat, and an expand behind it."""
    inputs = tuple(
        source if array is None else editor.new_constant(f"{source}.once", array, DType.BOOL)
        for array, source in zip(arrays, sources, strict=True)
    )
    (result,) = node.outputs
    once = editor.new_value(f"{result}.once", own)
    expand = Node(editor.free_node_name(f"{node.name}.expand"), Expand(editor.type(result).shape), (once,), (result,))
    editor.replace(node, replace(node, inputs=inputs, outputs=(once,)), expand)


def _changes_nothing(op: Op, array: Array | None) -> bool:
    """Whether a function of two booleans is the other where one is this."""
    whole = {Logic("and"): True, Logic("or"): False}.get(op) if isinstance(op, Logic) else None
    return array is not None and whole is not None and array.size == 1 and bool(array.reshape(-1)[0]) is whole


def _source(editor: GraphEditor, name: str) -> str:
    """What an expand repeats, or the value itself."""
    node = editor.producer(name)
    return node.inputs[0] if node is not None and isinstance(node.op, Expand) and not node.epilogue else name


def _once(editor: GraphEditor, name: str) -> Array | None:
    """A constant of booleans, 1 along each axis that repeats them; None where none does, and of any other value."""
    array = editor.constant(name)
    if array is None or array.dtype != np.bool_ or array.size < 2:
        return None
    own = array
    for axis in range(array.ndim):
        first = own.take((0,), axis)
        if own.shape[axis] > 1 and np.array_equal(own, np.broadcast_to(first, own.shape)):
            own = first
    return own if own.shape != array.shape else None


EXPAND_LATE = Pass("expand-late", _run)
