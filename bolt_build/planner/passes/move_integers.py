"""Moves integers in place of the numbers that they stand for: what lies between a dequantisation and a quantisation
with the same scale and zero point, and only moves elements or takes the largest, does the same to integers."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Graph, Node, TensorType
from bolt_build.graph.ops.integer_product import FACTORS
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.quantize import Dequantize, Quantize
from bolt_build.graph.ops.shape import Cast, Concat, Identity, Reshape, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fake_quantise import same_numbers
from bolt_build.planner.passes.multiply_integers import multiplies_integers
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import Policy

_MOVES = (Reshape, Transpose, Slice, Identity, Concat)


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MOVE_INTEGERS.name)
    for node in editor.nodes():
        if isinstance(node.op, Quantize) and node.op.to in FACTORS:
            _lift(editor, journal, node)
        elif isinstance(node.op, Cast) and node.op.to in FACTORS:
            _pool(editor, journal, node)
    return journal.result(editor.finish())


def _lift(editor: GraphEditor, journal: Journal, last: Node) -> None:
    """Puts what moves elements in front of a quantisation on the integers that are behind it."""
    assert isinstance(last.op, Quantize)
    mover = editor.producer(last.inputs[0])
    if last.epilogue or any(editor.type(name).rank for name in last.inputs[1:]) or mover is None:
        return
    if isinstance(mover.op, Dequantize):
        if _undoes(editor, mover, last):
            obstacle = editor.stand_in(last.outputs[0], mover.inputs[0])
            if obstacle is not None:
                journal.declined(last.name, obstacle)
                return
            editor.prune([mover.outputs[0]])
            journal.did(last.name, "removed", f"its integers are those of '{mover.inputs[0]}'")
        return
    while mover is not None and _moves(mover):
        if (why := editor.not_private(mover.outputs[0])) is not None:
            journal.declined(last.name, f"'{mover.name}' moves numbers: {why}")
            return
        sides = [editor.producer(name) for name in mover.inputs]
        if all(side is not None and _undoes(editor, side, last) for side in sides):
            _move(editor, journal, [side for side in sides if side is not None], last)
            return
        if len(mover.inputs) > 1:
            return
        mover = sides[0]


def _moves(node: Node) -> bool:
    return not node.epilogue and (isinstance(node.op, _MOVES) or takes_largest(node))


def takes_largest(node: Node) -> bool:
    """Whether a pooling is one that kernels have for integers."""
    op = node.op
    if not isinstance(op, Pool) or op.mode != "max" or op.ceil_mode or set(op.dilations) != {1} or len(op.kernel) > 3:
        return False
    pads = zip(op.pads_begin, op.pads_end, op.kernel, strict=True)
    return all(max(begin, end) < extent for begin, end, extent in pads)


def _undoes(editor: GraphEditor, back: Node, last: Node) -> bool:
    """Whether the quantisation gives the integers of which the dequantisation made numbers."""
    if not isinstance(back.op, Dequantize) or back.epilogue or not isinstance(last.op, Quantize):
        return False
    same = editor.type(back.inputs[0]).dtype is last.op.to
    return same and all(same_numbers(editor, a, b) for a, b in zip(back.inputs[1:], last.inputs[1:], strict=True))


def _move(editor: GraphEditor, journal: Journal, backs: list[Node], last: Node) -> None:
    """Takes the movers that lead from `backs` to the quantisation on its integers."""
    given = {back.outputs[0]: back.inputs[0] for back in backs}
    node, chain = editor.producer(last.inputs[0]), []
    while node is not None and node.outputs[0] not in given:
        chain.append(node)
        node = editor.producer(node.inputs[0])
    assert isinstance(last.op, Quantize)
    for mover in reversed(chain):
        is_last = mover is chain[0]
        type_ = TensorType(last.op.to, editor.type(mover.outputs[0]).shape)
        output = last.outputs[0] if is_last else editor.new_value(f"{mover.outputs[0]}.integers", type_)
        made = replace(
            mover, inputs=tuple(given[name] for name in mover.inputs), outputs=(output,),
            name=last.name if is_last else mover.name,
            covers=joined(mover.covers, last.covers) if is_last else mover.covers,
        )  # fmt: skip
        given[mover.outputs[0]] = output
        if is_last:
            editor.remove(mover)
            editor.replace(last, made)
        else:
            editor.replace(mover, made)
    editor.prune([back.outputs[0] for back in backs])
    journal.did(last.name, "moved", f"integers in place of numbers, by '{chain[-1].name}'")


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
    journal.did(last.name, "moved", f"integers in place of numbers, by '{pool.name}'")


MOVE_INTEGERS = Pass("move-integers", _run, pays_on=multiplies_integers)
