"""Copies of copies, forwards and backwards: slices of slices and of concatenations, concatenations of slices that
belong together and of concatenations. Parts without elements, as a cache of no words has them, are none."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.wording import many


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MERGE_SLICES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        while node is not None and not node.epilogue:
            if isinstance(node.op, Slice):
                node = _slice(editor, journal, node, node.op)
            elif isinstance(node.op, Concat):
                node = _concat(editor, journal, node, node.op)
            else:
                break
    return journal.result(editor.finish())


def _slice(editor: GraphEditor, journal: Journal, node: Node, op: Slice) -> Node | None:
    """The slice with what is in front of it, to be looked at again; None where nothing is to be done."""
    before = editor.producer(node.inputs[0])
    if before is None or before.epilogue:
        return None
    if isinstance(before.op, Slice):
        return _become(editor, journal, node, _composed(before.op, op), before.inputs, before)
    if not isinstance(before.op, Concat):
        return None
    return _slice_of_parts(editor, journal, node, op, before, before.op.axis)


def _composed(first: Slice, second: Slice) -> Slice:
    """One slice that does what `first` and then `second` do."""
    both = list(zip(first.begin, first.step, second.begin, second.step, strict=True))
    begin = tuple(at + by * inner for at, by, inner, _ in both)
    return Slice(begin, second.count, tuple(by * step for _, by, _, step in both))


def _slice_of_parts(
    editor: GraphEditor, journal: Journal, node: Node, op: Slice, before: Node, axis: int
) -> Node | None:
    """A slice of a concatenation reads the parts alone that it takes something of, where it takes a run of them."""
    if not op.count[axis]:
        return None
    first, last = sorted((op.begin[axis], op.begin[axis] + (op.count[axis] - 1) * op.step[axis]))
    at, taken, begin = 0, list[str](), 0
    for name in before.inputs:
        extent = editor.type(name).shape[axis]
        if at <= last and first < at + extent:
            begin = begin if taken else at
            taken.append(name)
        at += extent
    moved = replace(op, begin=(*op.begin[:axis], op.begin[axis] - begin, *op.begin[axis + 1 :]))
    if len(taken) == 1:
        return _become(editor, journal, node, moved, (taken[0],), before)
    whole = all(
        (b, c, s) == (0, sum(editor.type(name).shape[axis] for name in taken) if a == axis else e, 1)
        for a, (b, c, s, e) in enumerate(
            zip(moved.begin, moved.count, moved.step, editor.type(taken[0]).shape, strict=True)
        )
    )
    if whole and len(taken) < len(before.inputs):
        return _become(editor, journal, node, Concat(axis), tuple(taken), before)
    journal.declined(node.name, f"it takes of {len(taken)} of the {len(before.inputs)} inputs of '{before.name}'")
    return None


def _concat(editor: GraphEditor, journal: Journal, node: Node, op: Concat) -> Node | None:
    """The concatenation with one thing in front of it merged, to be looked at again; None where there is none."""
    parts = tuple(name for name in node.inputs if editor.type(name).elements)
    if 0 < len(parts) < len(node.inputs):
        shorter = replace(node, inputs=parts)
        editor.replace(node, shorter)
        removed = editor.prune(name for name in node.inputs if name not in parts)
        found = replace(shorter, covers=joined(*(each.covers for each in removed), node.covers))
        editor.replace(shorter, found)
        journal.did(node.name, "merged", f"without {many(len(node.inputs) - len(parts), 'part')} of no elements")
        return found
    for index, name in enumerate(node.inputs):
        before = editor.producer(name)
        if before is None or before.epilogue:
            continue
        if before.op == op and editor.not_private(name) is None:
            inputs = (*node.inputs[:index], *before.inputs, *node.inputs[index + 1 :])
            return _become(editor, journal, node, op, inputs, before)
        after = editor.producer(node.inputs[index + 1]) if index + 1 < len(node.inputs) else None
        if after is None or after.epilogue or after.inputs != before.inputs:
            continue
        joint = _adjacent(before.op, after.op, op.axis)
        if joint is not None:
            return _rejoined(editor, journal, node, index, before, joint)
    return None


def _adjacent(first: Op, second: Op, axis: int) -> Slice | None:
    """The slice that two of one tensor are together, the second behind the first along `axis`; None where they are
    none."""
    if not (isinstance(first, Slice) and isinstance(second, Slice)) or first.step != second.step:
        return None
    count = (*first.count[:axis], first.count[axis] + second.count[axis], *first.count[axis + 1 :])
    behind = first.begin[axis] + first.count[axis] * first.step[axis]
    expected = (*first.begin[:axis], behind, *first.begin[axis + 1 :])
    return Slice(first.begin, count, first.step) if second.begin == expected else None


def _rejoined(editor: GraphEditor, journal: Journal, node: Node, index: int, first: Node, joint: Slice) -> Node | None:
    """Inputs `index` and the next of the concatenation are one slice from now on, or what they are slices of."""
    read = node.inputs[index : index + 2]
    source = first.inputs[0]
    if joint.count == editor.type(source).shape and all(step == 1 for step in joint.step):
        merged = source
    else:
        (type,) = joint.infer([editor.type(source)])
        merged = editor.new_value(f"{read[0]}.joined", type)
        made = replace(first, name=editor.free_node_name(f"{first.name}.joined"), op=joint, outputs=(merged,))
        editor.replace(first, first, made)
    inputs = (*node.inputs[:index], merged, *node.inputs[index + 2 :])
    merged_node = replace(node, inputs=inputs)
    editor.replace(node, merged_node)
    removed = editor.prune(read)
    found = replace(merged_node, covers=joined(*(each.covers for each in removed), node.covers))
    editor.replace(merged_node, found)
    journal.did(node.name, "merged", f"'{read[0]}' and '{read[1]}' are neighbours in '{source}'")
    return found


def _become(editor: GraphEditor, journal: Journal, node: Node, op: Op, inputs: tuple[str, ...], before: Node) -> Node:
    """The node as `op` of `inputs`, which it reads past `before`."""
    covers = node.covers if editor.not_private(before.outputs[0]) else joined(before.covers, node.covers)
    merged = replace(node, op=op, inputs=inputs, covers=covers)
    editor.replace(node, merged)
    editor.prune(before.outputs)
    what = "a slice" if isinstance(node.op, Slice) else "a concatenation"
    journal.did(node.name, "merged", f"{what} of the {before.op.kind} '{before.name}'")
    return merged


MERGE_SLICES = Pass("merge-slices", _run)
