"""Asks booleans whether any or all of them hold, without numbers between.

Frameworks ask so (`mask.any(-1)`, `mask.all(-1)`), and ONNX's reductions had no booleans for long: exporters write
booleans as integers of 64 bits, the greatest or the sum of these, and a cast or a comparison behind it. The numbers are
eight times as many bytes as the booleans.

Numbers that are asked whether they are infinite, or none, are asked in their own type: torch-script makes doubles of
them first.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.logic import Ask, Compare
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

_ANY = {("greater", 0.0, False), ("greater_equal", 1.0, False), ("less", 0.0, True), ("less_equal", 1.0, True)}
"""Questions whether a count is above 0: the number, and whether it comes first."""
_NONE = {
    ("equal", 0.0, False), ("equal", 0.0, True), ("less_equal", 0.0, False), ("less", 1.0, False),
    ("greater_equal", 0.0, True), ("greater", 1.0, True),
}  # fmt: skip
"""The same whether it is 0."""

_WIDER = {
    DType.F16: (DType.F32, DType.F64), DType.BF16: (DType.F32, DType.F64), DType.F32: (DType.F64,),
}  # fmt: skip
"""Types that have every number of a type."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(ASK_BOOLEANS.name)
    for node in editor.nodes():
        if isinstance(node.op, Ask):
            _ask_narrow(editor, journal, node)
            continue
        cast = editor.producer(node.inputs[0]) if isinstance(node.op, Reduce) and not node.epilogue else None
        if cast is None or not isinstance(cast.op, Cast) or cast.epilogue:
            continue
        (given,) = cast.inputs
        source = editor.type(given)
        assert isinstance(node.op, Reduce)
        if source.dtype is not DType.BOOL or not all(source.shape[axis] for axis in node.op.axes):
            continue
        if node.op.mode in ("max", "min"):
            _reduce_first(editor, node, node.op, given)
            journal.did(node.name, "asked", f"whether {'any' if node.op.mode == 'max' else 'all'} of '{given}' hold")
        elif node.op.mode == "sum":
            _count(editor, journal, node, node.op, given)
        editor.prune(cast.outputs)
    return journal.result(editor.finish())


def _ask_narrow(editor: GraphEditor, journal: Journal, node: Node) -> None:
    """What is infinite or no number is so in each wider type as well."""
    cast = editor.producer(node.inputs[0])
    if cast is None or not isinstance(cast.op, Cast) or cast.epilogue or node.epilogue:
        return
    (given,) = cast.inputs
    if editor.type(cast.outputs[0]).dtype not in _WIDER.get(editor.type(given).dtype, ()):
        return
    editor.replace(node, replace(node, inputs=(given,)))
    editor.prune(cast.outputs)
    journal.did(node.name, "asked", f"'{given}' as it is, which '{cast.name}' makes wider")


def _reduce_first(editor: GraphEditor, node: Node, op: Reduce, given: str) -> None:
    """The number of what any or all booleans come to is the greatest or least of theirs."""
    (made,) = node.outputs
    (type_,) = op.infer([editor.type(given)])
    small = editor.new_value(f"{made}.asked", type_)
    reduced = replace(node, name=editor.free_node_name(f"{node.name}.asked"), inputs=(given,), outputs=(small,))
    editor.replace(node, reduced, Node(node.name, Cast(editor.type(made).dtype), (small,), (made,)))
    for reader in editor.readers(made):
        if reader.op == Cast(DType.BOOL) and not reader.epilogue:
            editor.stand_in(reader.outputs[0], small)
    editor.prune([made])


def _count(editor: GraphEditor, journal: Journal, node: Node, op: Reduce, given: str) -> None:
    """Those who ask whether a count is 0 ask the booleans."""
    (made,) = node.outputs
    for reader in editor.readers(made):
        holds = _asks(editor, reader, made)
        if holds is None:
            continue
        asked = Reduce("max", op.axes, op.keepdims)
        if holds:
            editor.replace(reader, replace(reader, op=asked, inputs=(given,)))
        else:
            own = editor.new_value(f"{reader.outputs[0]}.any", editor.type(reader.outputs[0]))
            found = Node(editor.free_node_name(f"{reader.name}.any"), asked, (given,), (own,))
            editor.replace(reader, found, replace(reader, op=Ask("not"), inputs=(own,)))
        journal.did(reader.name, "asked", f"whether {'any' if holds else 'none'} of '{given}' hold")
    editor.prune([made])


def _asks(editor: GraphEditor, reader: Node, count: str) -> bool | None:
    """Whether a reader asks if a count is above 0 (True) or 0 (False); None where it asks for something else."""
    if not isinstance(reader.op, Compare) or reader.epilogue or reader.inputs.count(count) != 1:
        return None
    if editor.type(reader.outputs[0]).shape != editor.type(count).shape:
        return None
    first = reader.inputs[1] == count
    number = editor.constant(reader.inputs[0 if first else 1])
    if number is None or number.size != 1:
        return None
    question = (reader.op.question, float(number.reshape(())), first)
    return True if question in _ANY else False if question in _NONE else None


ASK_BOOLEANS = Pass("ask-booleans", _run)
