"""Makes scale and bias of a normalisation of what a model multiplies its result with and adds to it: numbers that it
computes, and that rows share. Diffusion transformers scale and shift every image's tokens so by its time and its text.

A constant scale that the normalisation has, as exporters give it ones where a model has none, goes into the computed
one: that is a few rows, and `fold-parts` takes it on to the weights that make them.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SCALE_NORMS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Norm) or node.epilogue or len(node.inputs) > 2:
            continue
        if len(node.inputs) == 2 and not editor.is_constant(node.inputs[1]):
            continue
        found = _combined(editor, node, "mul")
        if found is None:
            continue
        if isinstance(found, str):
            journal.declined(node.name, found)
            continue
        reader, scale = found
        scaled = _scaled(editor, node, reader, scale)
        journal.did(scaled.name, "fused", f"'{scale}' into the normalisation '{node.name}' as its scale")
        behind = _combined(editor, scaled, "add")
        if isinstance(behind, tuple):
            reader, bias = behind
            _put(editor, scaled, reader, (*scaled.inputs, bias))
            journal.did(reader.name, "fused", f"'{bias}' into the normalisation '{node.name}' as its bias")
    return journal.result(editor.finish())


def _combined(editor: GraphEditor, node: Node, function: str) -> tuple[Node, str] | str | None:
    """What alone reads the normalisation's result and combines it with computed numbers that rows share, and these;
    None where nothing does so, or why they stay apart."""
    value = node.outputs[0]
    readers = [each for each in editor.readers(value) if each.op == Binary(function) and not each.epilogue]
    if not readers:
        return None
    reader, type_ = readers[0], editor.type(value)
    other = reader.inputs[1 if reader.inputs[0] == value else 0]
    shared = 2 * editor.type(other).elements <= type_.elements
    if editor.is_constant(other) or not shared or editor.type(reader.outputs[0]) != type_:
        return None
    if (why := editor.not_private(value)) is not None:
        return f"'{other}' stays out of the normalisation: {why}"
    return reader, other


def _scaled(editor: GraphEditor, node: Node, reader: Node, scale: str) -> Node:
    """The normalisation with the scale; in front of it what multiplies that with its own."""
    if len(node.inputs) == 2:
        inputs = scale, node.inputs[1]
        (type_,) = Binary("mul").infer([editor.type(name) for name in inputs])
        both = editor.new_value(f"{scale}.scale", type_)
        name = editor.free_node_name(f"{reader.name}.scale")
        editor.replace(node, Node(name, Binary("mul"), inputs, (both,)), node)
        scale = both
    return _put(editor, node, reader, (node.inputs[0], scale))


def _put(editor: GraphEditor, node: Node, reader: Node, inputs: tuple[str, ...]) -> Node:
    """The normalisation in the place of its reader."""
    made = replace(reader, op=node.op, inputs=inputs, covers=joined(node.covers, reader.covers))
    editor.remove(node)
    editor.replace(reader, made)
    return made


SCALE_NORMS = Pass("scale-norms", _run)
