"""From `Graph` to `torch.fx.GraphModule`: straight-line code, as if the model had been written in torch."""

from __future__ import annotations

from torch import fx, nn

from bolt_build.bench.torch_graph.builder import Builder, Unsupported
from bolt_build.bench.torch_graph.elementwise import ELEMENTWISE
from bolt_build.bench.torch_graph.layers import LAYERS
from bolt_build.bench.torch_graph.moves import MOVES
from bolt_build.bench.torch_graph.norms import NORMS
from bolt_build.graph.ir import Graph

__all__ = ["Unsupported", "torch_module"]

_LOWER = {**LAYERS, **NORMS, **ELEMENTWISE, **MOVES}


def torch_module(graph: Graph) -> nn.Module:
    """A module that takes the graph's inputs in their order and gives a tuple of its outputs, for this batch alone.

    Weights are f32 until they are cast; all floating-point data is meant to be of one element type, so that casts
    between such types in the graph do nothing. Raises Unsupported for an operator that another package has added.
    """
    build = Builder(graph)
    for name in graph.inputs:
        build.take(name)
    for node in graph.nodes:
        lower = _LOWER.get(type(node.op))
        if lower is None or node.epilogue:
            raise Unsupported(f"operator '{node.op.kind}' of '{node.name}' has no counterpart in torch here")
        build.made[node.outputs[0]] = lower(build, node)
    build.code.output(tuple(build.value(name) for name in graph.outputs))
    module = fx.GraphModule(build.root, build.code)
    return module.eval().requires_grad_(False)
