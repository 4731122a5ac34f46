"""Graphs inside nodes that give one tensor as two of their outputs, for onnxruntime: it leaves all but one of these
empty, and fails to load a model where such a branch takes the place of its node."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, helper

from bolt_build.graph.onnx_model.onnx_parse import subgraphs
from bolt_build.verify.emitter import unused_prefix


def with_outputs_apart(model: ModelProto) -> ModelProto:
    """The model in which every output of a graph inside a node has a name of its own; itself where all have."""
    if not any(_repeats(graph) for graph in _inside(model.graph)):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    graphs = list(_inside(changed.graph))
    prefix = unused_prefix(
        name for graph in (changed.graph, *graphs) for node in graph.node for name in (*node.input, *node.output)
    )
    for number, graph in enumerate(graphs):
        _name_apart(graph, f"{prefix}{number}/")
    return changed


def _inside(graph: GraphProto) -> list[GraphProto]:
    """All graphs inside nodes, and inside these."""
    found = [inner for node in graph.node for attribute in node.attribute for inner in subgraphs(attribute)]
    return [each for inner in found for each in (inner, *_inside(inner))]


def _repeats(graph: GraphProto) -> bool:
    names = [output.name for output in graph.output]
    return len(set(names)) < len(names)


def _name_apart(graph: GraphProto, prefix: str) -> None:
    seen: set[str] = set()
    for index, output in enumerate(graph.output):
        if output.name in seen:
            name = f"{prefix}{index}"
            graph.node.append(helper.make_node("Identity", [output.name], [name]))
            output.name = name
        seen.add(output.name)
