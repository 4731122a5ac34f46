"""Sums up over axes where a model adds up all selections along them, one by one.

torch.export writes adaptive pooling so where the output's extent does not divide the input's: the pixels of every
window along two axes of their own, and the sum of one selection after the other (the pyramids of PSPNet and UPerNet).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor

_FEWEST = 4
"""Selections that are worth a sum of their own."""
_ADD = Binary("add")


@dataclass(frozen=True)
class _Selected:
    """What of `source` a value is: the element `places[i]` along each of `axes`, which are gone."""

    source: str
    axes: tuple[int, ...]
    places: tuple[int, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SUM_SELECTIONS.name)
    for old in reversed(editor.nodes()):  # the last sum first
        node = editor.node(old.name)
        if node is None or node.op != _ADD or node.epilogue:
            continue
        terms = list[_Selected]()
        if not _collect(editor, node, terms) or len(terms) < _FEWEST:
            continue
        source, axes = terms[0].source, terms[0].axes
        shape = editor.type(source).shape
        if any((term.source, term.axes) != (source, axes) for term in terms):
            continue
        if len({term.places for term in terms}) != len(terms) or len(terms) != prod(shape[axis] for axis in axes):
            if not _is_term(editor, node):
                reason = f"its {len(terms)} terms are not all that '{source}' has along {list(axes)}"
                journal.declined(node.name, reason)
            continue
        total = Node(node.name, Reduce("sum", axes, False), (source,), node.outputs, covers=node.covers)
        editor.replace(node, total)
        editor.prune(node.inputs)
        journal.did(node.name, f"summed up over {len(axes)} axes", f"it adds up {len(terms)} selections")
    return journal.result(editor.finish())


def _is_term(editor: GraphEditor, node: Node) -> bool:
    """Whether it is part of a longer sum."""
    (output,) = node.outputs
    return editor.not_private(output) is None and editor.readers(output)[0].op == _ADD


def _collect(editor: GraphEditor, node: Node, terms: list[_Selected]) -> bool:
    """Whether all terms of a sum are selections; they are added to `terms`."""
    waiting = [node]
    while waiting:
        for value in waiting.pop().inputs:
            made = editor.producer(value)
            if made is not None and made.op == _ADD and not made.epilogue and editor.not_private(value) is None:
                waiting.append(made)
                continue
            found = _selected(editor, value)
            if found is None:
                return False
            terms.append(found)
    return True


def _selected(editor: GraphEditor, value: str) -> _Selected | None:
    """The furthest tensor that a value is selected of by constants; None where it is not."""
    chain = list[tuple[int, int]]()
    while (node := editor.producer(value)) is not None and isinstance(node.op, Gather) and not node.epilogue:
        index = editor.constant(node.inputs[1])
        if index is None or index.ndim:
            break
        extent = editor.type(node.inputs[0]).shape[node.op.axis]
        chain.append((node.op.axis, int(index) % extent))
        value = node.inputs[0]
    if not chain:
        return None
    left = list(range(len(editor.type(value).shape)))
    found = dict[int, int]()
    for axis, place in reversed(chain):
        found[left.pop(axis)] = place
    axes = tuple(sorted(found))
    return _Selected(value, axes, tuple(found[axis] for axis in axes))


SUM_SELECTIONS = Pass("sum-selections", _run)
