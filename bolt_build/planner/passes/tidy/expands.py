"""Lets arithmetic broadcast by itself what an expand repeats for it. For example torch's normalize divides by norms
that it has made as large as what they divide.

A transpose between them moves what is repeated instead: the relative positions of a bottleneck transformer are one
row of each image's rows, repeated and then turned, and one column. A reshape leaves out the axes that only repeat: the
deviation of each group of channels, as EvoNorm divides by it, is one number a channel.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from bolt_build.graph.ir import Graph, Node, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(BROADCAST.name)
    for expand in editor.nodes():
        if not isinstance(expand.op, Expand) or expand.epilogue:
            continue
        (source,), (large,) = expand.inputs, expand.outputs
        for name in [reader.name for reader in editor.readers(large)]:
            reader = editor.node(name)  # it may read what another reader turns as well, and be another node by now
            if reader is None or large not in reader.inputs:
                continue
            if isinstance(reader.op, Transpose):
                _turn_first(editor, journal, expand, reader, reader.op)
            elif isinstance(reader.op, Reshape) and not reader.epilogue:
                _reshape_first(editor, journal, expand, reader)
            elif _broadcasts(editor, reader, large, editor.type(source)):
                _read(editor, journal, expand, reader, large, source)
        editor.prune([large])
    return journal.result(editor.finish())


def _turn_first(editor: GraphEditor, journal: Journal, expand: Node, turn: Node, op: Transpose) -> None:
    """What an expand repeats, transposed before arithmetic broadcasts it, where that alone reads what is transposed."""
    (source,), (large,) = expand.inputs, turn.outputs
    readers, small = editor.readers(large), editor.type(source)
    if small.rank != len(op.perm) or editor.is_output(large) or not readers:
        return
    (turned,) = op.infer([small])
    if not all(_broadcasts(editor, reader, large, turned) for reader in readers):
        return
    value = editor.new_value(f"{large}.once", turned)
    editor.replace(turn, Node(turn.name, op, (source,), (value,), covers=turn.covers))
    for reader in readers:
        _read(editor, journal, expand, reader, large, value)


def _reshape_first(editor: GraphEditor, journal: Journal, expand: Node, reshape: Node) -> None:
    """What an expand repeats, reshaped without the axes that only repeat, where arithmetic alone reads it."""
    (source,), (repeated,), (large,) = expand.inputs, expand.outputs, reshape.outputs
    readers, small = editor.readers(large), editor.type(source).shape
    full, shape = editor.type(repeated).shape, editor.type(large).shape
    if len(small) != len(full) or editor.is_output(large) or not readers or not prod(shape):
        return
    needed, left = list(small), list(shape)
    for axes, places in _matched(full, shape):
        if prod(small[axis] for axis in axes) == 1:
            for place in places:
                left[place] = 1
        else:
            for axis in axes:
                needed[axis] = full[axis]
    dtype = editor.type(large).dtype
    if prod(left) == prod(shape) or not all(
        _broadcasts(editor, reader, large, TensorType(dtype, tuple(left))) for reader in readers
    ):
        return
    made, value = list[Node](), source
    if tuple(needed) != small:
        value = editor.new_value(f"{large}.part", TensorType(dtype, tuple(needed)))
        name = editor.free_node_name(f"{reshape.name}.part")
        made.append(Node(name, Expand(tuple(needed)), (source,), (value,)))
    once = editor.new_value(f"{large}.once", TensorType(dtype, tuple(left)))
    editor.replace(reshape, *made, replace(reshape, op=Reshape(tuple(left)), inputs=(value,), outputs=(once,)))
    for reader in readers:
        _read(editor, journal, expand, reader, large, once)


def _matched(full: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes of as many elements in the smallest parts of which each has as many in both."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(full) or j < len(shape):
        axes, places, a, b = list[int](), list[int](), 1, 1
        while not axes or not places or a != b:
            if i < len(full) and (a <= b or j == len(shape)):
                a *= full[i]
                axes.append(i)
                i += 1
            elif j < len(shape):
                b *= shape[j]
                places.append(j)
                j += 1
            else:
                break
        found.append((axes, places))
    return found


def _read(editor: GraphEditor, journal: Journal, expand: Node, reader: Node, large: str, small: str) -> None:
    inputs = tuple(small if name == large else name for name in reader.inputs)
    editor.replace(reader, replace(reader, inputs=inputs))
    journal.did(reader.name, "broadcasts", f"'{small}' without the expand '{expand.name}'")


def _broadcasts(editor: GraphEditor, reader: Node, large: str, small: TensorType) -> bool:
    """Whether a node is arithmetic, and its result of `small` for `large` has the type that it has now."""
    if not isinstance(reader.op, Binary) or reader.epilogue:
        return False
    types = [small if name == large else editor.type(name) for name in reader.inputs]
    try:
        return reader.op.infer(types) == (editor.type(reader.outputs[0]),)
    except ShapeError:
        return False


BROADCAST = Pass("broadcast", _run)
