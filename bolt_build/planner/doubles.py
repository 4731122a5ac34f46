"""Operators on fp64 that no family computes in fp64, such as GridSample: fp32 computes them, between conversions.

Exporters write fp64 where a number of Python's met a tensor, between layers of fp32 that set how exact a result can be.
A model that reads fp64 asks for it, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.families.base import Family
from bolt_build.graph.ir import Graph, Node, ShapeError, TensorType
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import Target


@dataclass(frozen=True)
class Singled:
    """The graph, and a decision for each node that fp32 computes now."""

    graph: Graph
    decisions: tuple[Decision, ...]


def in_single(graph: Graph, spec: TargetSpec, target: Target, families: Sequence[Family]) -> Singled:
    """The graph with those nodes on fp64 computed in fp32 that no family has a kernel for, if it reads no fp64."""
    if any(graph.type(name).dtype is DType.F64 for name in graph.inputs):
        return Singled(graph, ())
    editor, precision, found = GraphEditor(graph), PRECISIONS[spec.precision], list[Decision]()
    for node in graph.nodes:
        if not _in_double(graph, node) or isinstance(node.op, Cast):
            continue
        if any(family.propose(graph, node, target, precision)[0] for family in families):
            continue
        if _narrow(editor, node):
            reason = f"no kernel computes {node.op.kind} in f64"
            found.append(Decision("doubles", node.name, "computed in fp32", reason))
    return Singled(editor.finish(), tuple(found))


def _in_double(graph: Graph, node: Node) -> bool:
    return any(graph.type(name).dtype is DType.F64 for name in (*node.inputs, *node.outputs))


def _narrow(editor: GraphEditor, node: Node) -> bool:
    """Puts the node between conversions. False of one that makes fp64 of anything."""
    before, inputs = list[Node](), list[str]()
    for name in node.inputs:
        if editor.type(name).dtype is not DType.F64:
            inputs.append(name)
            continue
        array, maker = editor.constant(name), editor.producer(name)
        if array is not None:
            inputs.append(editor.new_constant(f"{name}.f32", array.astype(np.float32), DType.F32))
        elif maker is not None and isinstance(maker.op, Cast) and editor.type(maker.inputs[0]).dtype is DType.F32:
            inputs.append(maker.inputs[0])
        else:
            single = editor.new_value(f"{name}.f32", TensorType(DType.F32, editor.type(name).shape))
            cast = Node(editor.free_node_name(f"{node.name}.in{len(inputs)}"), Cast(DType.F32), (name,), (single,))
            before.append(cast)
            inputs.append(single)
    try:
        types = node.op.infer([editor.type(name) for name in inputs])
    except ShapeError:
        return False
    if any(type_.dtype is DType.F64 for type_ in types):
        return False
    outputs, after = list[str](), list[Node]()
    for index, (name, type_) in enumerate(zip(node.outputs, types, strict=True)):
        if editor.type(name).dtype is not DType.F64:
            outputs.append(name)
            continue
        outputs.append(editor.new_value(f"{name}.f32", type_))
        label = editor.free_node_name(f"{node.name}.out{index}")
        after.append(Node(label, Cast(DType.F64), (outputs[-1],), (name,), covers=node.covers))
    made = replace(node, inputs=tuple(inputs), outputs=tuple(outputs))
    editor.replace(node, *before, made, *after)
    return True
