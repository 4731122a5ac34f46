"""What passes share that compute a part of a graph with its axes in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bolt_build.graph.ir import Node
from bolt_build.planner.rewrite import GraphEditor, joined

Beside = Callable[[Node], Iterable[Node]]
"""Nodes that are turned with a node, if they can be."""
Return = Callable[[Node, str, str], list[Node]]
"""Of a node, the value that it gives now and that which it gave: nodes that make the latter of the former."""


def connected(able: Mapping[str, Node], beside: Beside) -> Iterable[tuple[Node, ...]]:
    """Nodes of `able` by name, in their order, that hang together."""
    order = {name: index for index, name in enumerate(able)}
    met: set[str] = set()
    for first in able.values():
        if first.name in met:
            continue
        waiting, names = [first], {first.name}
        while waiting:
            for other in beside(waiting.pop()):
                if other.name in able and other.name not in names:
                    names.add(other.name)
                    waiting.append(other)
        met |= names
        yield tuple(able[name] for name in sorted(names, key=order.__getitem__))


def give(
    editor: GraphEditor, node: Node, before: Sequence[Node], others: Sequence[Node], backs: Sequence[Node], back: Return
) -> str:
    """Puts `node`, whose operator and inputs are turned, in its place behind `before`; returns the value that it gives.

    Of the `others`, which are not turned and read its result, `backs` turn it themselves. It has the name of what the
    first of them made; others find the old result behind what `back` makes.
    """
    (output,) = node.outputs
    old = editor.node(node.name)
    assert old is not None
    (type_,) = node.op.infer([editor.type(name) for name in node.inputs])
    if backs:
        first, *more = backs
        same = []
        for each in more:
            if editor.stand_in(each.outputs[0], first.outputs[0]) is None:
                same.append(each)
            first = editor.node(first.name) or first  # it may make a graph output of another now
        value, covers = first.outputs[0], joined(node.covers, first.covers)
        editor.remove(first)
    else:
        value, covers, same = editor.new_value(f"{output}.turned", type_), node.covers, []
    behind = []
    if editor.is_output(output) or len(others) > len(backs) or len(same) < len(backs) - 1:
        behind = back(node, value, output)
    editor.replace(old, *before, replace(node, outputs=(value,), covers=covers), *behind)
    return value
