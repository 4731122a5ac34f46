"""Nodes that a pass puts in the place of others."""

from __future__ import annotations

from planner_checks import graph

from bolt_build.graph.ir import Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.planner.rewrite import GraphEditor


def test_nodes_that_are_added_together_are_all_there_whatever_they_are_called() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2]) -> (%y) {
          %z = tanh(%x) // "z"
          %y = relu(%z) // "y"
        }""")
    editor = GraphEditor(before)
    node = editor.node("y")
    assert node is not None
    first, second = (editor.new_value("part", before.type("x")) for _ in range(2))
    relu = Activation("relu")
    editor.replace(
        node,
        Node("z", relu, ("z",), (first,)),
        Node("z", relu, (first,), (second,)),
        Node("y", relu, (second,), ("y",)),
    )
    assert [(each.name, each.inputs, each.outputs) for each in editor.finish().nodes] == [
        ("z", ("x",), ("z",)), ("z.2", ("z",), (first,)), ("z.3", (first,), (second,)), ("y", (second,), ("y",)),
    ]  # fmt: skip
