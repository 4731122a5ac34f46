"""Concatenates along another axis what is transposed only to be concatenated, and back.

Exporters turn an axis to the front to assign to parts of it, and turn the result back: heads of multi-head latent
attention, whose first elements are one product's and whose last another's, are made so (DeepSeek, MiniCPM3).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.moves.shape import Concat, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(TURN_PARTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Transpose) or node.epilogue:
            continue
        parts = editor.producer(node.inputs[0])
        if parts is None or not isinstance(parts.op, Concat) or parts.epilogue:
            continue
        if len(parts.inputs) < 2 or editor.not_private(parts.outputs[0]) is not None:
            continue
        if all(map(editor.is_constant, parts.inputs)):
            continue
        added = list[Node]()
        names = [_turned(editor, name, node.op.perm, added) for name in parts.inputs]
        found = tuple(name for name in names if name is not None)
        if len(found) < len(names):
            continue
        made = replace(node, op=Concat(node.op.perm.index(parts.op.axis)), inputs=found)
        editor.replace(node, *added, made)
        removed = editor.prune(node.inputs)
        editor.replace(made, replace(made, covers=joined(*(each.covers for each in removed), made.covers)))
        journal.did(node.name, "made a concatenation", f"transposes around '{parts.name}' undo each other")
    return journal.result(editor.finish())


def _turned(editor: GraphEditor, name: str, perm: tuple[int, ...], added: list[Node]) -> str | None:
    """What `name` is a transpose of that `perm` undoes; of a slice of one, the slice in the order in front of it. A
    constant is turned."""
    array = _constant(editor, name)
    if array is not None:
        turned = np.ascontiguousarray(array.transpose(perm))
        return editor.new_constant(f"{name}.turned", turned, editor.type(name).dtype)
    part, cut = editor.producer(name), None
    if part is not None and isinstance(part.op, Slice) and not part.epilogue:
        part, cut = editor.producer(part.inputs[0]), part
    if part is None or not isinstance(part.op, Transpose) or part.epilogue:
        return None
    if tuple(part.op.perm[axis] for axis in perm) != tuple(range(len(perm))):
        return None
    if cut is None:
        return part.inputs[0]
    assert isinstance(cut.op, Slice)
    op = Slice(*(tuple(each[axis] for axis in perm) for each in (cut.op.begin, cut.op.count, cut.op.step)))
    (type_,) = op.infer([editor.type(part.inputs[0])])
    value = editor.new_value(f"{cut.outputs[0]}.turned", type_)
    at = editor.free_node_name(f"{cut.name}.turned", {each.name for each in added})
    added.append(Node(at, op, (part.inputs[0],), (value,), covers=cut.covers))
    return value


def _constant(editor: GraphEditor, name: str) -> Array | None:
    """The constant that the value is, or a slice of one: what an assignment leaves of zeros."""
    cut = editor.producer(name)
    if cut is None or not isinstance(cut.op, Slice) or cut.epilogue:
        return editor.constant(name)
    array = editor.constant(cut.inputs[0])
    return None if array is None else cut.op.evaluate([array])[0]


TURN_PARTS = Pass("turn-parts", _run)
