"""Moves integers in place of the numbers that they stand for: numbers are made of them behind what moves elements or
takes the largest, and integers of numbers in front of it. Where both meet with one scale and zero point, none is."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Graph, Node, TensorType
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Reshape, Slice, Transpose
from bolt_build.graph.ops.quantised.integer_product import FACTORS
from bolt_build.graph.ops.quantised.quantize import Dequantize, Quantize
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.quantised.fake_quantise import same_numbers
from bolt_build.planner.passes.quantised.multiply_integers import multiplies_integers
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MOVE_INTEGERS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None:
            continue
        if isinstance(node.op, Cast) and node.op.to in FACTORS:
            _pool(editor, journal, node)
        elif isinstance(node.op, Quantize):
            _cancel(editor, journal, node)
        elif _moves(node):
            _sink(editor, journal, node)
    for old in reversed(editor.nodes()):
        node = editor.node(old.name)
        if node is not None and isinstance(node.op, Quantize):
            _hoist(editor, journal, node)
    return journal.result(editor.finish())


def _moves(node: Node) -> bool:
    if node.epilogue:
        return False
    return isinstance(node.op, Reshape | Transpose | Slice | Identity | Concat | Gather) or takes_largest(node)


def _data(mover: Node) -> tuple[str, ...]:
    """What is moved, without the indices that say where to."""
    return mover.inputs[:1] if isinstance(mover.op, Gather) else mover.inputs


def takes_largest(node: Node) -> bool:
    """Whether a pooling is one that kernels have for integers."""
    op = node.op
    if not isinstance(op, Pool) or op.mode != "max" or op.ceil_mode or set(op.dilations) != {1} or len(op.kernel) > 3:
        return False
    pads = zip(op.pads_begin, op.pads_end, op.kernel, strict=True)
    return all(max(begin, end) < extent for begin, end, extent in pads)


def _whole(editor: GraphEditor, node: Node | None, op: type[Dequantize | Quantize]) -> bool:
    """Whether the node is an `op` of integers of 8 bits with one scale and one zero point for all. A scale below 0
    turns the order of numbers around, and one of 0 is none of their inverse."""
    if (
        node is None
        or not isinstance(node.op, op)
        or node.epilogue
        or any(editor.type(n).rank for n in node.inputs[1:])
    ):
        return False
    scale = editor.constant(node.inputs[1])
    if scale is not None and not float(scale) > 0:
        return False
    return editor.type((node.inputs if op is Dequantize else node.outputs)[0]).dtype in FACTORS


def _sink(editor: GraphEditor, journal: Journal, mover: Node) -> None:
    """Takes what makes numbers behind what moves them."""
    data = _data(mover)
    backs = [back for name in data if (back := editor.producer(name)) is not None]
    if len(backs) < len(data) or not all(_whole(editor, back, Dequantize) for back in backs):
        return
    first, *others = backs
    dtype = editor.type(first.inputs[0]).dtype
    for other in others:
        pairs = zip(first.inputs[1:], other.inputs[1:], strict=True)
        if editor.type(other.inputs[0]).dtype is not dtype or not all(same_numbers(editor, a, b) for a, b in pairs):
            return
    (output,) = mover.outputs
    integers = editor.new_value(f"{output}.integers", TensorType(dtype, editor.type(output).shape))
    inputs = (*(back.inputs[0] for back in backs), *mover.inputs[len(data) :])
    moved = replace(mover, inputs=inputs, outputs=(integers,))
    name = editor.free_node_name(f"{mover.name}.numbers")
    behind = Node(name, first.op, (integers, *first.inputs[1:]), (output,), covers=first.covers)
    editor.replace(mover, moved, behind)
    editor.prune([back.outputs[0] for back in backs])
    journal.did(mover.name, "moved", "integers in place of numbers")


def _hoist(editor: GraphEditor, journal: Journal, last: Node) -> None:
    """Takes what makes integers in front of what moves numbers, unless it would make more of them there."""
    mover = editor.producer(last.inputs[0])
    if mover is None or not _whole(editor, last, Quantize):
        return
    if isinstance(mover.op, Dequantize):
        _cancel(editor, journal, last)
        return
    if not _moves(mover) or editor.not_private(mover.outputs[0]) is not None:
        return
    data, (output,) = _data(mover), last.outputs
    if any(map(editor.is_constant, data)):
        return
    if sum(editor.type(source).elements for source in data) > editor.type(output).elements:
        return
    made, integers = list[Node](), list[str]()
    for source in data:
        type_ = TensorType(editor.type(output).dtype, editor.type(source).shape)
        integers.append(editor.new_value(f"{source}.integers", type_))
        name = editor.free_node_name(f"{last.name}.{len(made)}") if made else last.name
        made.append(replace(last, name=name, inputs=(source, *last.inputs[1:]), outputs=(integers[-1],)))
    editor.remove(mover)
    moved = replace(mover, inputs=(*integers, *mover.inputs[len(data) :]), outputs=(output,))
    editor.replace(last, *made, moved)
    journal.did(mover.name, "moved", "integers in place of numbers")
    for each in made:
        _hoist(editor, journal, each)


def _cancel(editor: GraphEditor, journal: Journal, last: Node) -> None:
    """Leaves integers that are made into numbers and back as they are."""
    back = editor.producer(last.inputs[0])
    if back is None or not _whole(editor, back, Dequantize) or not _whole(editor, last, Quantize):
        return
    pairs = zip(back.inputs[1:], last.inputs[1:], strict=True)
    if editor.type(back.inputs[0]).dtype is not editor.type(last.outputs[0]).dtype:
        return
    if not all(same_numbers(editor, a, b) for a, b in pairs):
        return
    obstacle = editor.stand_in(last.outputs[0], back.inputs[0])
    if obstacle is not None:
        journal.declined(last.name, obstacle)
        return
    editor.prune([back.outputs[0]])
    journal.did(last.name, "removed", f"it undoes '{back.name}'")


def _pool(editor: GraphEditor, journal: Journal, last: Node) -> None:
    """A maximum of integers that import computes of real numbers."""
    pool = editor.producer(last.inputs[0])
    first = None if pool is None else editor.producer(pool.inputs[0])
    if pool is None or not takes_largest(pool) or pool.epilogue or first is None or not isinstance(first.op, Cast):
        return
    (source,) = first.inputs
    if first.op.to is not DType.F32 or editor.type(source).dtype is not editor.type(last.outputs[0]).dtype:
        return
    if any(editor.not_private(each.outputs[0]) is not None for each in (pool, first)):
        return
    covers = joined(first.covers, pool.covers, last.covers)
    editor.remove(first)
    editor.remove(pool)
    editor.replace(last, replace(pool, name=last.name, inputs=(source,), outputs=last.outputs, covers=covers))
    journal.did(last.name, "moved", "integers in place of numbers")


MOVE_INTEGERS = Pass("move-integers", _run, pays_on=multiplies_integers)
