"""Leaves out what computes integers that are known: one number whatever the inputs are, or what was there before.

Exporters write Python's floor division as a quotient less one where signs differ and something is left: of places along
an axis, which are never negative, seven of its eight nodes have no effect. A histogram of the numbers 0 to 31 with 32
bins brings each number to floating point and back, and gives the number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.ranges import Range, ranges
from bolt_build.planner.rewrite import GraphEditor

_LARGEST = 1 << 20
"""Bytes of a constant."""
_MOST_NUMBERS, _MOST_NODES = 4096, 8
"""Numbers that a function is asked about, and nodes of one."""
_NEUTRAL = {"add": 0, "sub": 0}
"""The number on the right that changes nothing."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(KNOWN_INTEGERS.name)
    known = ranges(graph)
    for node in editor.nodes():
        if len(node.outputs) > 1 or editor.is_output(node.outputs[0]) or editor.node(node.name) is None:
            continue
        _constant(editor, journal, node, known)
    for node in editor.nodes():
        if editor.node(node.name) is None or not editor.type(node.outputs[0]).dtype.is_integer:
            continue
        kept = _unchanged(editor, node, known)
        if kept is not None and editor.stand_in(node.outputs[0], kept) is None:
            editor.prune(name for name in node.inputs if name != kept)
            journal.did(node.name, "removed", f"it is '{kept}', whatever the inputs are")
    return journal.result(editor.finish())


def _constant(editor: GraphEditor, journal: Journal, node: Node, known: Mapping[str, Range]) -> None:
    """Makes a constant of the node where it gives one number."""
    (name,) = node.outputs
    low, high = known.get(name, (0, 1))
    type_ = editor.type(name)
    if low != high or not type_.elements:
        return
    if type_.nbytes > _LARGEST:
        journal.declined(node.name, f"it would be a constant of {type_.nbytes} bytes")
        return
    editor.remove(node)
    editor.make_constant(name, np.full(type_.shape, low, numpy_dtype(type_.dtype)))
    editor.prune(node.inputs)
    journal.did(node.name, "folded", f"it is {low}, whatever the inputs are")


def _unchanged(editor: GraphEditor, node: Node, known: Mapping[str, Range]) -> str | None:
    """The value that the node's output always is; None where it may differ."""
    if isinstance(node.op, Binary) and node.op.function in _NEUTRAL and not node.epilogue:
        left, right = node.inputs
        neutral = known.get(right) == (_NEUTRAL[node.op.function],) * 2
        if neutral and editor.type(left) == editor.type(node.outputs[0]) and not editor.is_constant(left):
            return left
    return _of_numbers(editor, node, known)


def _of_numbers(editor: GraphEditor, node: Node, known: Mapping[str, Range]) -> str | None:
    """The integers of which the node is a function that gives each of them, through floating point."""
    nodes, value = list[Node](), node.outputs[0]
    type_ = editor.type(value)
    while len(nodes) < _MOST_NODES:
        made = editor.producer(value)
        if made is None or made.epilogue or not isinstance(made.op, Activation | Binary | Cast):
            return None
        given = [name for name in made.inputs if not editor.is_constant(name)]
        numbers = (editor.constant(name) for name in made.inputs if editor.is_constant(name))
        if len(given) != 1 or any(each is None or each.size != 1 for each in numbers):
            return None
        nodes.append(made)
        (value,) = given
        if editor.type(value) == type_ and value in known and any(_floats(editor, each) for each in nodes):
            low, high = known[value]
            if high - low < _MOST_NUMBERS and _gives_them(editor, nodes[::-1], np.arange(low, high + 1)):
                return value
    return None


def _floats(editor: GraphEditor, node: Node) -> bool:
    return editor.type(node.outputs[0]).dtype.is_float


def _gives_them(
    editor: GraphEditor, nodes: list[Node], numbers: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> bool:
    array = np.asarray(numbers)
    for node in nodes:
        inputs = []
        for name in node.inputs:
            constant = editor.constant(name)
            inputs.append(array if constant is None else constant.reshape(()))
        if not isinstance(node.op, Cast):
            inputs = [each.astype(numpy_dtype(editor.type(node.outputs[0]).dtype)) for each in inputs]
        (array,) = node.op.evaluate(inputs)
    return bool(np.array_equal(array, numbers))


KNOWN_INTEGERS = Pass("known-integers", _run)
