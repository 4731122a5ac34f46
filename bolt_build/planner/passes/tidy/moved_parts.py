"""Makes one move of parts that are cut along one axis and put behind each other along another.

Models bring heads to the front of the batch so, and back: `torch.cat(x.split(d, 2), 0)`, and `tf.concat(tf.split(x, h,
axis=2), axis=0)`. As a reshape and a transpose it is what others write, which attention reads in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MOVE_PARTS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Concat) or node.epilogue or len(node.inputs) < 2:
            continue
        parts = _parts(editor, node.inputs)
        across = None if parts is None else _across(parts)
        if parts is None or across is None or across == node.op.axis:
            continue
        _move(editor, node, parts, across, node.op.axis)
        journal.did(node.name, "made a transpose", f"{len(parts)} parts along axis {across} lie along {node.op.axis}")
    return journal.result(editor.finish())


def _parts(editor: GraphEditor, names: Sequence[str]) -> list[Slice] | None:
    """The slices of one tensor that these are, without steps."""
    found, source = list[Slice](), None
    for name in names:
        node = editor.producer(name)
        if node is None or node.epilogue or not isinstance(node.op, Slice) or any(step != 1 for step in node.op.step):
            return None
        if source not in (None, node.inputs[0]):
            return None
        source = node.inputs[0]
        found.append(node.op)
    return found if source is not None and not editor.is_constant(source) else None


def _across(parts: Sequence[Slice]) -> int | None:
    """The axis along which parts of one size follow each other; None where they do not."""
    first, second = parts[:2]
    axes = [axis for axis, (a, b) in enumerate(zip(first.begin, second.begin, strict=True)) if a != b]
    if len(axes) != 1:
        return None
    (axis,) = axes
    extent = first.count[axis]
    for index, part in enumerate(parts):
        begin = (*first.begin[:axis], first.begin[axis] + index * extent, *first.begin[axis + 1 :])
        if (part.begin, part.count) != (begin, first.count):
            return None
    return axis


def _move(editor: GraphEditor, node: Node, parts: Sequence[Slice], across: int, along: int) -> None:
    """The parts as a new axis in front of that which they are put along."""
    first, count = parts[0], len(parts)
    slices = [editor.producer(name) for name in node.inputs]
    assert slices[0] is not None
    source, chain = slices[0].inputs[0], Chain(editor, f"{node.name}.parts")
    region = (*first.count[:across], count * first.count[across], *first.count[across + 1 :])
    if region != editor.type(source).shape:
        source = chain.add(replace(first, count=region), [source])
    source = chain.add(Reshape((*first.count[:across], count, *first.count[across:])), [source])
    rest = [axis for axis in range(len(region) + 1) if axis != across]
    at = rest.index(along if along < across else along + 1)
    source = chain.add(Transpose((*rest[:at], across, *rest[at:])), [source])
    shape = editor.type(node.outputs[0]).shape
    editor.replace(node, *chain.nodes, replace(node, op=Reshape(shape), inputs=(source,)))
    removed = editor.prune(node.inputs)
    made = editor.producer(node.outputs[0])
    assert made is not None
    editor.replace(made, replace(made, covers=joined(made.covers, *(each.covers for each in removed))))


MOVE_PARTS = Pass("move-parts", _run)
